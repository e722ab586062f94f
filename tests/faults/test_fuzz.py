"""Random changes to valid requests: each is answered or ended, never with a failure of ours, and nothing stays held."""

import asyncio
import json
import random
from collections import Counter

import pytest

from app.api.limits import EdgeLimits
from tests.api.conftest import Edge, StartEdge
from tests.fakes.raw_worker import OK, Connected, RawWorker
from tests.patience import eventually

BODY = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}], "n": 1, "stream": false}'

SEEDS = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY),
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    b"%x\r\n%s\r\n0\r\nx-trailer: 1\r\n\r\n" % (len(BODY), BODY),
    b"POST /v1/messages HTTP/1.1\r\nHost: gateway\r\nExpect: 100-continue\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(BODY), BODY),
    b"GET /v1/models HTTP/1.1\r\nHost: gateway\r\n\r\n"
    b"POST /v1/completions HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\nContent-Length: 14\r\n\r\n"
    b'{"model": "m"}',
    b"POST /v1/completions HTTP/1.0\r\nUpgrade: h2c\r\nConnection: Upgrade, Http2-Settings\r\n"
    b"Content-Length: 14\r\n\r\n"
    b'{"model": "m"}',
)

TOKENS = (
    b"\r\n", b"\n", b"\r", b"\x00", b":", b" ", b"\t", b"chunked", b"Content-Length: 5\r\n", b"Content-Length: -1\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip, chunked\r\n", b"Host: other\r\n", b"HTTP/1.0",
    b"HTTP/2.0", b"Connection: keep-alive\r\n", b"Connection: upgrade\r\nUpgrade: websocket\r\n",
    b"Expect: 100-continue\r\n", b"0\r\n\r\n", b"ffffffffffffffff\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\xff\xfe", b"%00", b"//", b"http://evil/", b"[", b"[" * 300, b'"', b"\\ud800", b"1e999", b"x" * 5000,
    b"X-A: b\r\n" * 120,
    b"CONNECT ", b"OPTIONS ", b"HEAD ", b"Content-Length: 99999999999999999999\r\n", b"content-encoding: gzip\r\n",
)  # fmt: skip

OF_OURS = {200, 400, 401, 404, 405, 408, 413, 414, 431}
"""What a client may be told here; 5xx would be a failure of ours, since the worker answers everything."""


def mutated(chance: random.Random) -> bytes:
    data = bytearray(chance.choice(SEEDS))
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3, 6))):
        place = chance.randrange(len(data) + 1)
        kind = chance.randrange(6)
        if kind == 0:
            data[place:place] = chance.choice(TOKENS)
        elif kind == 1:
            del data[place : place + chance.choice((1, 1, 2, 10, 60))]
        elif kind == 2 and data:
            data[min(place, len(data) - 1)] = chance.randrange(256)
        elif kind == 3:
            piece = data[place : place + chance.randrange(1, 80)]
            data[place:place] = piece
        elif kind == 4:
            line = data.find(b"\r\n", place)
            if line >= 0:
                data[line + 2 : line + 2] = chance.choice(TOKENS)
        else:
            data = data[:place] or data
    return bytes(data)


def statuses(raw: bytes) -> list[int]:
    return [int(part[:3]) for part in raw.split(b"HTTP/1.1 ")[1:] if part[:3].isdigit()]


async def attempt(edge: Edge, chance: random.Random) -> list[int]:
    data = mutated(chance)
    talk = await edge.talk(b"")
    edge.talks.clear()
    try:
        step = chance.choice((len(data) or 1, 1 + len(data) // 3, 7))
        for start in range(0, len(data), step):
            if talk.writer.transport.is_closing():
                break  # refused before the end
            talk.writer.write(data[start : start + step])
            if chance.random() < 0.3:
                await asyncio.sleep(0.001)
        leaves = chance.random()
        if leaves < 0.1:
            return []
        if leaves < 0.2 and not talk.writer.transport.is_closing():
            talk.writer.write_eof()
        raw = await talk.rest()
    except ConnectionError:
        return []
    except TimeoutError:
        raise AssertionError(f"it hangs: {data!r}") from None
    finally:
        talk.leave()
    told = statuses(raw)
    assert set(told) <= OF_OURS | {100, 503}, (data, raw)
    if 503 in told:
        # A worker closes when it is asked with a framing of ours, never; so only /health may say so.
        raise AssertionError((data, raw))
    return told


async def strict(connection: Connected) -> None:
    """Answers what a worker may be sent, and nothing else."""
    while True:
        body = await connection.read_request()
        head = connection.requests.pop()[0]
        names = [line.split(b":")[0].lower() for line in head.split(b"\r\n")[1:] if line]
        assert names.count(b"content-length") == names.count(b"host") == 1, head
        assert b"transfer-encoding" not in names, head
        assert json.loads(body)["model"] == "m", body
        await connection.send(OK)


@pytest.mark.parametrize("seed", range(4))
async def test_no_request_hangs_or_breaks_the_gateway(
    start_edge: StartEdge, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.api.listener.KEEP_ALIVE_S", 0.2)
    monkeypatch.setattr("app.api.edge.LINGER_S", 0.05)

    edge = await start_edge(edge_limits=EdgeLimits(head_timeout_s=0.3, body_window_s=0.3, body_pace=300))
    chance = random.Random(seed)
    told: Counter[int] = Counter()
    wrong: list[BaseException] = []

    async def answer(connection: Connected) -> None:
        try:
            await strict(connection)
        except AssertionError as error:
            wrong.append(error)
            raise

    async with RawWorker(answer) as worker:
        edge.add(worker)

        async def client(own: random.Random) -> None:
            for _ in range(60):
                told.update(await attempt(edge, own))

        await asyncio.gather(*(client(random.Random(chance.random())) for _ in range(25)))
        assert not wrong
        assert told[200] + told[408] > 200, "many are still valid, if too slow where the machine stands still"
        assert told[200]
        assert told[400] > 100
        await edge.at_rest()
        assert edge.proxy.held.size == 0

        async def is_served() -> bool:
            talk = await edge.talk(SEEDS[0])
            raw = await talk.rest()
            talk.leave()
            return statuses(raw) == [200]

        await eventually(is_served)  # it goes on serving
    server = edge.listener._server
    assert server is not None
    await eventually(lambda: not server.server_state.connections)
