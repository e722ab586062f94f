"""Half a minute of everything at once, nothing twice: memory, descriptors and metric series stay as they are."""

import asyncio
import json
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.conftest import Gateway
from tests.patience import eventually, patience

WARM_S = 9.0
RUN_S = 20.0
CLIENTS = 8

RSS_GROWTH_MAX = 6 * 1024 * 1024
"""Of one serving process, in bytes. A leak of 200 bytes per request would be about as much in this time."""

MODELS = b'{"object":"list","data":[{"id":"m","object":"model","created":1,"owned_by":"vllm"}]}'


async def engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A worker that answers what it is asked, and sometimes breaks a stream off."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = next((int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")), 0)
            body = await reader.readexactly(length)
            if head.startswith(b"get /v1/models"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(MODELS), MODELS))
            elif head.startswith(b"get"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            elif b'"stream": true' in body:
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                )
                for _ in range(5):
                    event = b'data: {"text": "%s"}\n\n' % secrets.token_hex(8).encode()
                    writer.write(b"%x\r\n%s\r\n" % (len(event), event))
                    await asyncio.sleep(0.001)
                if b'"breaks": true' in body:
                    writer.transport.abort()
                    return
                writer.write(b"0\r\n\r\n")
            else:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


def request(place: int) -> tuple[bytes, bool]:
    """A request like no other, and whether its client leaves in the middle."""
    unique = secrets.token_hex(16)
    kind = place % 9
    body: dict[str, object] = {"model": "m", "prompt": unique * 20, "prompt_cache_key": unique, "stream": kind < 4}
    path = "/v1/completions"
    headers = f"x-request-id: {unique}\r\nx-{unique}: {unique}\r\n"
    if kind == 2:
        body["breaks"] = True
    elif kind == 5:
        body["model"] = f"model-{unique}"
    elif kind == 6:
        path = f"/{unique}"
    raw = json.dumps(body)
    if kind == 7:
        raw = raw[:-1]
    framing = f"content-length: {len(raw)}\r\n\r\n{raw}"
    if kind == 8:
        framing = f"transfer-encoding: chunked\r\n\r\n{len(raw):x}\r\n{raw}\r\n0\r\n\r\n"
    data = f"POST {path} HTTP/1.1\r\nhost: {unique}\r\nconnection: close\r\n{headers}{framing}"
    return data.encode(), kind in (1, 3)


async def client(port: int, until: float, least: int) -> int:
    """Requests until then, and at least so many."""
    place = 0
    while time.monotonic() < until or place < least:
        place += 1
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            data, leaves = request(place)
            writer.write(data)
            async with patience():
                if leaves:
                    await reader.read(200)
                else:
                    await reader.read()
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()
    return place


@dataclass
class Size:
    rss: int
    descriptors: int
    series: int


def measure(gateway: Gateway, pids: list[int]) -> Size:
    page = os.sysconf("SC_PAGE_SIZE")
    rss = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page for pid in pids)
    descriptors = sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids)
    series = sum(not line.startswith("#") for line in gateway.exposition().splitlines())
    return Size(rss, descriptors, series)


def serving_processes(gateway: Gateway) -> list[int]:
    return [pid for pid in gateway.tree() if b"app.commands.process" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.fixture
def gateways() -> Iterator[list[Gateway]]:
    started: list[Gateway] = []
    yield started
    for gateway in started:
        gateway.end()


async def test_nothing_grows(gateways: list[Gateway]) -> None:
    workers = [await asyncio.start_server(engine, "127.0.0.1", 0) for _ in range(2)]
    urls = ",".join(f"http://127.0.0.1:{worker.sockets[0].getsockname()[1]}" for worker in workers)
    gateway = await asyncio.to_thread(
        lambda: Gateway("serve", "--worker-urls", urls, "--processes", "1", "--log-level", "warning")
    )
    gateways.append(gateway)
    # The access log is not under test, and it would be kept here.
    await asyncio.to_thread(gateway.wait_for, r'"event": ?"listening"')
    await asyncio.to_thread(gateway.listening)
    await asyncio.to_thread(
        gateway.until, lambda status: sum(worker["health"] == "healthy" for worker in status["workers"]) == 2
    )
    pids = serving_processes(gateway)
    assert len(pids) == 1
    port = int(gateway.data.rpartition(":")[2])

    async def load(seconds: float, least: int) -> int:
        until = time.monotonic() + seconds
        return sum(await asyncio.gather(*(client(port, until, least // CLIENTS) for _ in range(CLIENTS))))

    async def at_rest() -> Size:
        await asyncio.sleep(4.5)  # idle connections to workers are closed after 3 s
        return await asyncio.to_thread(measure, gateway, pids)

    await load(WARM_S, 400)
    before = await at_rest()
    served = await load(RUN_S, 1000)
    after = await at_rest()
    print(f"{served} requests, {before} -> {after}")
    exposition = await asyncio.to_thread(gateway.exposition)
    for told in ('status="404"', 'status="400"', 'status="200"', "warmset_client_disconnects_total"):
        assert told in exposition
    await eventually(lambda: measure(gateway, pids).descriptors <= before.descriptors)
    assert after.series == before.series
    assert after.rss - before.rss < RSS_GROWTH_MAX
    for worker in workers:
        worker.close()
