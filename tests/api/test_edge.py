"""What a request may be, and how long it may take to arrive."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from app.api.errors import EdgeReason
from app.api.limits import EdgeLimits
from app.api.listener import Listener
from app.api.respond import Receive, Scope, Send, send_json
from app.runtime.tasks import Tasks
from tests.patience import FOR_EVER_S, eventually, patience, undisturbed

REFUSED: list[EdgeReason] = []
LIMITS = EdgeLimits(
    max_head_bytes=4096,
    max_headers=20,
    max_target_bytes=500,
    head_timeout_s=FOR_EVER_S,
    body_window_s=FOR_EVER_S,
    body_pace=100,
    max_connections=6,
    on_refused=REFUSED.append,
)
HASTY_HEAD = replace(LIMITS, head_timeout_s=0.3)
HASTY_BODY = replace(LIMITS, body_window_s=0.3)
"""For those who are to miss them. A pause of the machine cannot make anybody else do so."""


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with what it was sent."""
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
        if not message["more_body"]:
            break
    await send_json(send, 200, json.dumps({"path": scope["path"], "body": body.decode()}).encode())


@asynccontextmanager
async def running(limits: EdgeLimits) -> AsyncIterator[Listener]:
    tasks = Tasks()
    listener = Listener("127.0.0.1", 0, name="edge")
    listener.bind()
    serving = tasks.start(listener.run(echo, limits), "edge")
    await eventually(lambda: listener._server is not None and listener._server.started)
    REFUSED.clear()
    yield listener
    await listener.stop(serving, 0.3, asyncio.get_running_loop().create_future())
    await tasks.stop()


def port_of(listener: Listener) -> int:
    return int(listener.url.rpartition(":")[2])


def connections_of(listener: Listener) -> int:
    assert listener._server is not None
    return len(listener._server.server_state.connections)


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    async with running(LIMITS) as started:
        yield started


@pytest.fixture
def port(listener: Listener) -> int:
    return port_of(listener)


@pytest.fixture
async def hasty_port() -> AsyncIterator[int]:
    async with running(HASTY_HEAD) as started:
        yield port_of(started)


async def talk(port: int, *pieces: bytes, pause_s: float = 0.0) -> bytes:
    """Send the pieces, and read until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            if writer.transport.is_closing():
                break  # refused before the end
            writer.write(piece)
            if pause_s:
                await asyncio.sleep(pause_s)
        async with patience():
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


def request(headers: bytes = b"", body: bytes = b"", target: bytes = b"/x", version: bytes = b"1.1") -> bytes:
    return b"POST %s HTTP/%s\r\nhost: h\r\nconnection: close\r\n%scontent-length: %d\r\n\r\n%s" % (
        target,
        version,
        headers,
        len(body),
        body,
    )


def answered(raw: bytes) -> tuple[int, str]:
    """Status, and the error's code or the echoed body."""
    head, body = raw.split(b"\r\n\r\n", 1)
    answer = json.loads(body)
    return int(head.split(b" ")[1]), answer["error"]["code"] if "error" in answer else answer["body"]


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (request(b"x: %s\r\n" % (b"y" * 5000)), 431, "head_too_large"),
        (request(b"".join(b"x%d: y\r\n" % number for number in range(30))), 431, "head_too_large"),
        (b"POST /x HTTP/1.1\r\nhost: h\r\nx: " + b"y" * 100_000, 431, "head_too_large"),
        (request(target=b"/" + b"x" * 600), 414, "target_too_long"),
        (b"POST /x HTTP/1.1\r\ncontent-length: 0\r\n\r\n", 400, "malformed_http"),
        (request(b"host: again\r\n"), 400, "malformed_http"),
        (b"POST /x HTTP/1.1\r\nhost: a b/c@d\r\ncontent-length: 0\r\n\r\n", 400, "malformed_http"),
        (b"POST /x HTTP/2.0\r\nhost: g\r\ncontent-length: 0\r\n\r\n", 400, "malformed_http"),
        (request(b"authorization: Bearer a\r\nauthorization: Bearer b\r\n"), 400, "malformed_http"),
        (
            b"POST /x HTTP/1.1\r\nhost: g\r\ntransfer-encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            400,
            "malformed_http",
        ),
        (request(b"transfer-encoding: chunked\r\n", b"{}"), 400, "malformed_http"),
        (request(b"content-length: 7\r\n", b"{}"), 400, "malformed_http"),
        (request(b"x: a\r\n b\r\n"), 400, "malformed_http"),
        (request(b"x : a\r\n"), 400, "malformed_http"),
        (b"POST /x HTTP/1.1\nhost: h\ncontent-length: 0\n\n", 400, "malformed_http"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", 400, "malformed_http"),
    ],
)
async def test_what_breaks_a_limit_is_refused_and_counted(port: int, raw: bytes, status: int, code: str) -> None:
    assert answered(await talk(port, raw)) == (status, code)
    assert [reason.value for reason in REFUSED] == [code]


async def test_what_keeps_the_limits_passes(port: int) -> None:
    headers = b"".join(b"x%d: y\r\n" % number for number in range(15))
    assert answered(await talk(port, request(headers, b"{}", target=b"/" + b"x" * 400))) == (200, "{}")
    assert not REFUSED


@pytest.mark.parametrize("step", [1, 3, 7, 40])
async def test_a_request_in_any_pieces(port: int, step: int) -> None:
    raw = request(b"x: y\r\n", b'{"a": 1}')
    pieces = [raw[start : start + step] for start in range(0, len(raw), step)]
    assert answered(await talk(port, *pieces, pause_s=0.0001)) == (200, '{"a": 1}')


async def test_a_head_that_does_not_end(hasty_port: int) -> None:
    assert answered(await talk(hasty_port, b"POST /x HTTP/1.1\r\nhost: h\r\n")) == (408, "head_timeout")


async def test_a_connection_that_says_nothing(hasty_port: int) -> None:
    assert answered(await talk(hasty_port)) == (408, "head_timeout")


async def test_a_head_that_drips(hasty_port: int) -> None:
    drips = [b"POST /x HTTP/1.1\r\nhost: h\r\n", *[b"x: y\r\n"] * 12]
    assert answered(await talk(hasty_port, *drips, pause_s=0.05)) == (408, "head_timeout")


async def test_a_body_that_drips() -> None:
    drips = [b"POST /x HTTP/1.1\r\nhost: h\r\ncontent-length: 1000\r\n\r\n", *[b"x"] * 20]
    async with running(HASTY_BODY) as listener:
        assert answered(await talk(port_of(listener), *drips, pause_s=0.05)) == (408, "body_timeout")


async def test_a_slow_body_that_keeps_the_pace() -> None:
    raw = b"POST /x HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: 1000\r\n\r\n"

    async def attempt(scale: float) -> None:
        async with running(replace(LIMITS, body_window_s=0.3 * scale)) as listener:
            pieces = [b"x" * 50] * 20
            assert answered(await talk(port_of(listener), raw, *pieces, pause_s=0.05 * scale)) == (200, "x" * 1000)

    await undisturbed(attempt, pause_s=0.05)


async def test_who_was_refused_is_not_listened_to_for_long(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.api.edge.LINGER_S", 0.05)
    _, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
    writer.write(b"NONSENSE\r\n\r\n")
    await eventually(lambda: REFUSED)
    await eventually(lambda: not connections_of(listener))
    writer.transport.abort()


async def test_more_connections_than_accepted(listener: Listener, port: int) -> None:
    open_ones = [await asyncio.open_connection("127.0.0.1", port) for _ in range(6)]
    await eventually(lambda: connections_of(listener) == 6)
    raw = await talk(port, request(body=b"{}"))
    assert answered(raw) == (503, "too_many_connections")
    assert b"retry-after: 1" in raw
    for _, writer in open_ones:
        writer.transport.abort()
    # The refused one is listened to for a while yet, and counts.
    await eventually(lambda: connections_of(listener) < 6)
    assert answered(await talk(port, request(body=b"{}"))) == (200, "{}")


async def test_more_connections_of_one_client_than_accepted() -> None:
    limits = EdgeLimits(max_connections=20, max_connections_per_client=3, on_refused=REFUSED.append)
    async with running(limits) as listener:
        port = port_of(listener)
        # Of two clients.
        addresses = ["127.0.0.1", "127.0.0.2"] * 3
        held = [await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0)) for address in addresses]
        await eventually(lambda: connections_of(listener) == len(held))
        for _ in range(3):
            raw = await talk(port, request(body=b"{}"))
            assert answered(raw) == (429, "too_many_client_connections")
            assert raw.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
            assert b"retry-after: 1" in raw
        assert REFUSED == [EdgeReason.TOO_MANY_CLIENT_CONNECTIONS] * 3
        held[0][1].transport.abort()
        await eventually(lambda: connections_of(listener) < len(held))
        assert answered(await talk(port, request(body=b"{}"))) == (200, "{}")
        for _, writer in held:
            writer.transport.abort()


async def test_without_a_limit_connections_of_a_client_are_not_counted() -> None:
    async with running(EdgeLimits(on_refused=REFUSED.append)) as listener:
        port = port_of(listener)
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(50)]
        assert answered(await talk(port, request(body=b"{}"))) == (200, "{}")
        assert not REFUSED
        for _, writer in held:
            writer.transport.abort()


@pytest.mark.parametrize("is_split", [False, True])
@pytest.mark.parametrize("is_chunked", [False, True])
async def test_an_upgrade_that_we_do_not_know_is_ignored(port: int, is_chunked: bool, is_split: bool) -> None:
    # What Java's own client sends by default, and curl --http2.
    upgrade = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"
    head = b"POST /x HTTP/1.1\r\nhost: h\r\n" + upgrade
    if is_chunked:
        parts = (head + b"transfer-encoding: chunked\r\n\r\n", b'8\r\n{"a": 1}\r\n0\r\n\r\n')
    else:
        parts = (head + b"content-length: 8\r\n\r\n", b'{"a": 1}')
    again = request(body=b"again")
    pieces = (*parts, again) if is_split else (b"".join(parts) + again,)
    raw = await talk(port, *pieces, pause_s=0.02)
    first, second = raw.split(b"HTTP/1.1 200 OK")[1:]
    assert b'{\\"a\\": 1}' in first
    assert b'"body": "again"' in second


async def test_an_upgrade_without_a_body(port: int) -> None:
    raw = b"GET /x HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw)
    async with patience():
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.transport.abort()


async def test_two_requests_at_once_are_answered_in_turn(port: int) -> None:
    first = b"POST /1 HTTP/1.1\r\nhost: h\r\ncontent-length: 1\r\n\r\na"
    raw = await talk(port, first + request(body=b"b", target=b"/2"))
    assert raw.index(b'"/1"') < raw.index(b'"/2"')


async def test_expect_is_answered_here(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /x HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
    async with patience():
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"{}")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.transport.abort()
