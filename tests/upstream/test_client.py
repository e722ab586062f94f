"""The data path's client against workers that behave in every way that one can."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Coroutine, Generator
from typing import Any

import pytest

from app.core.fleet.exchange import Call, StreamBroken, UpstreamError
from app.core.fleet.reasons import Failure
from app.core.fleet.worker import Worker
from app.upstream.client import HttpUpstream
from app.upstream.connection import HIGH_WATER, MAX_HEADER_BYTES, ExchangeLimits, WorkerAnswer
from tests.fakes.raw_worker import OK, Connected, RawWorker
from tests.patience import FOR_EVER_S, PATIENCE_S, eventually, patience, soon, undisturbed

PATIENT = ExchangeLimits(FOR_EVER_S, FOR_EVER_S, FOR_EVER_S)
"""For tests of something else than time."""


@pytest.fixture
async def upstream() -> AsyncIterator[HttpUpstream]:
    client = HttpUpstream(connect_timeout_s=PATIENCE_S, limits=PATIENT)
    yield client
    client.close()


def at(worker: RawWorker) -> Worker:
    return Worker("w", worker.url, "1")


def post(body: bytes = b"{}", headers: tuple[tuple[bytes, bytes], ...] = ()) -> Call:
    return Call(b"POST", b"/v1/completions", headers, body)


async def body_of(answer: WorkerAnswer) -> bytes:
    pieces = []
    while piece := await answer.read():
        pieces.append(piece)
    return b"".join(pieces)


def once(data: bytes) -> object:
    """A script: read a request, send `data`, close."""

    async def script(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(data)

    return script


async def test_the_request_on_the_wire(upstream: HttpUpstream) -> None:
    async with RawWorker() as worker:
        client = HttpUpstream(connect_timeout_s=PATIENCE_S, limits=PATIENT, credential="worker-key")
        answer = await client.send(at(worker), post(b'{"a": 1}', ((b"x-request-id", b"r1"),)))
        assert (answer.status, await body_of(answer)) == (200, b"{}")
        head, body = worker.requests[0]
        assert body == b'{"a": 1}'
        assert head == (
            b"POST /v1/completions HTTP/1.1\r\n"
            b"host: 127.0.0.1:%d\r\n"
            b"authorization: Bearer worker-key\r\n"
            b"accept-encoding: identity\r\n"
            b"x-request-id: r1\r\n"
            b"content-length: 8\r\n\r\n" % worker.port
        )
        client.close()


async def test_a_path_prefix_comes_before_the_target(upstream: HttpUpstream) -> None:
    async with RawWorker() as worker:
        await upstream.send(Worker("w", worker.url + "/engine", "1"), post())
        assert worker.requests[0][0].startswith(b"POST /engine/v1/completions HTTP/1.1\r\n")


async def test_connections_are_kept_and_shared(upstream: HttpUpstream) -> None:
    async with RawWorker() as worker:
        for _ in range(5):
            await body_of(await upstream.send(at(worker), post()))
        assert len(worker.connections) == 1
        await asyncio.gather(*(upstream.send(at(worker), post()) for _ in range(4)))
        assert 1 < len(worker.connections) <= 4


async def test_a_stale_connection_costs_one_retry_and_nothing_else(upstream: HttpUpstream) -> None:
    async def answer_and_let_go(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(OK)
        # Without `Connection: close`: the worker's idle limit struck just when the next request came.
        await connection.reader.read(1)
        connection.reset()

    async with RawWorker(answer_and_let_go, answer_and_let_go) as worker:
        await body_of(await upstream.send(at(worker), post(b"1")))
        answer = await upstream.send(at(worker), post(b"2"))
        assert await body_of(answer) == b"{}"
        assert [body for _, body in worker.requests] == [b"1", b"2"]
        assert len(worker.connections) == 2


async def test_a_fresh_connection_that_closes_without_an_answer_is_not_retried(upstream: HttpUpstream) -> None:
    async with RawWorker(once(b"")) as worker:
        with pytest.raises(UpstreamError) as caught:
            await upstream.send(at(worker), post())
        assert caught.value.failure is Failure.NO_ANSWER
        assert len(worker.requests) == 1


async def test_a_reused_connection_that_breaks_inside_the_head_is_not_retried(upstream: HttpUpstream) -> None:
    async def half_a_head(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(OK)
        await connection.read_request()
        await connection.send(b"HTTP/1.1 200 OK\r\ncont")

    async with RawWorker(half_a_head) as worker:
        await body_of(await upstream.send(at(worker), post()))
        with pytest.raises(UpstreamError) as caught:
            await upstream.send(at(worker), post())
        assert caught.value.failure is Failure.NO_ANSWER
        assert len(worker.connections) == 1


async def test_refused_and_silent_addresses_are_connect_failures() -> None:
    client = HttpUpstream(connect_timeout_s=0.2, limits=PATIENT)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(UpstreamError) as refused:
            await client.send(Worker("w", f"http://127.0.0.1:{free.getsockname()[1]}", "1"), post())
    assert refused.value.failure is Failure.CONNECT
    # A full backlog swallows connections as a black hole does.
    with socket.socket() as hole:
        hole.bind(("127.0.0.1", 0))
        hole.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(hole.getsockname())
        with pytest.raises(UpstreamError) as silent:
            await client.send(Worker("w", f"http://127.0.0.1:{hole.getsockname()[1]}", "1"), post())
        for filler in fillers:
            filler.close()
    assert silent.value.failure is Failure.CONNECT
    assert client.open_connections == 0
    client.close()


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b"abcde"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\nold", b"old"),
    ],
    ids=["chunked", "empty", "no content", "interim", "no length", "http/1.0"],
)
async def test_every_way_to_delimit_a_body(upstream: HttpUpstream, answer: bytes, body: bytes) -> None:
    async with RawWorker(once(answer)) as worker:
        assert await body_of(await upstream.send(at(worker), post())) == body


@pytest.mark.parametrize("cut", range(1, 60, 7))
async def test_answers_cut_anywhere_arrive_whole(upstream: HttpUpstream, cut: int) -> None:
    whole = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"

    async def in_two(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(whole[:cut])
        await asyncio.sleep(0.005)
        await connection.send(whole[cut:])

    async with RawWorker(in_two) as worker:
        assert await body_of(await upstream.send(at(worker), post())) == b"abcde"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n5\r\nde",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nXX\r\n",
    ],
    ids=["short", "cut chunk", "bad chunk size"],
)
async def test_a_broken_body_gives_what_arrived_and_then_says_so(upstream: HttpUpstream, answer: bytes) -> None:
    async with RawWorker(once(answer)) as worker:
        opened = await upstream.send(at(worker), post())
        assert (await opened.read()).startswith(b"abc")
        with pytest.raises(StreamBroken):
            await body_of(opened)
        await eventually(lambda: upstream.open_connections == 0)


@pytest.mark.parametrize(
    "answer",
    [
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * (MAX_HEADER_BYTES + 1),
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
    ],
    ids=["garbage", "endless head", "upgrade"],
)
async def test_a_malformed_head_is_no_answer(upstream: HttpUpstream, answer: bytes) -> None:
    async with RawWorker(once(answer)) as worker:
        with pytest.raises(UpstreamError) as caught:
            await upstream.send(at(worker), post())
        assert caught.value.failure is Failure.NO_ANSWER


@pytest.mark.parametrize(
    ("begin", "is_in_head"),
    [
        (b"HTTP/1.1 200 OK\r\nx: ", True),
        (b"HTTP/1.1 200 OK\r\n", True),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: ", False),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;", False),
    ],
    ids=["value", "name", "trailer", "chunk extension"],
)
async def test_a_header_without_an_end_is_not_kept_for_ever(
    upstream: HttpUpstream, begin: bytes, is_in_head: bool
) -> None:
    sent = 0

    async def endless(connection: Connected) -> None:
        nonlocal sent
        await connection.read_request()
        await connection.send(begin)
        while sent < 100 * MAX_HEADER_BYTES:
            await connection.send(b"y" * 65536)
            sent += 65536

    async with RawWorker(endless) as worker:
        if is_in_head:
            with pytest.raises(UpstreamError, match="bytes without one of a body"):
                await upstream.send(at(worker), post())
        else:
            with pytest.raises(StreamBroken, match="bytes without one of a body"):
                await body_of(await upstream.send(at(worker), post()))
        await asyncio.sleep(0.05)
        assert sent < 30 * MAX_HEADER_BYTES, "what the kernel's buffers took, and no more"


async def test_bytes_that_nobody_asked_for_poison_the_connection(upstream: HttpUpstream) -> None:
    async def talkative(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(OK + b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged")
        await connection.until_closed()

    async with RawWorker(talkative) as worker:
        assert await body_of(await upstream.send(at(worker), post())) == b"{}"
        await asyncio.sleep(0.02)
        assert await body_of(await upstream.send(at(worker), post())) == b"{}"
        assert len(worker.connections) == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 204 No Content\r\n\r\nextra",
        b"HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\nextra",
        b"HTTP/1.1 304 Not Modified\r\ntransfer-encoding: chunked\r\n\r\n5\r\nextra\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nextra",
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
    ],
)
async def test_what_may_have_more_bytes_behind_it_is_not_used_again(upstream: HttpUpstream, answer: bytes) -> None:
    async def script(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(answer)
        await connection.until_closed()

    async with RawWorker(script) as worker:
        for _ in range(2):
            opened = await upstream.send(at(worker), post())
            assert await body_of(opened) == b""
            assert (b"content-length", b"5") not in opened.headers
            await eventually(lambda: upstream.open_connections == 0)
        assert len(worker.connections) == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 1001 + b"content-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: a\r\n b\r\ncontent-length: 0\r\n\r\n",
    ],
    ids=["two lengths", "two framings", "1001 headers", "folded header"],
)
async def test_a_head_with_two_meanings_is_no_answer(upstream: HttpUpstream, answer: bytes) -> None:
    async with RawWorker(once(answer)) as worker:
        with pytest.raises(UpstreamError) as caught:
            await upstream.send(at(worker), post())
        assert caught.value.failure is Failure.NO_ANSWER
        assert len(worker.requests) == 1


async def test_interim_answers_and_trailers_are_not_part_of_the_answer(upstream: HttpUpstream) -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" * 3
    final = b"HTTP/1.1 200 OK\r\nx: y\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nlate: z\r\n\r\n"

    async def script(connection: Connected) -> None:
        while True:
            await connection.read_request()
            await connection.send(hints + final)

    async with RawWorker(script) as worker:
        for _ in range(2):
            answer = await upstream.send(at(worker), post())
            assert await body_of(answer) == b"a"
            assert answer.headers == [(b"x", b"y")]
        assert len(worker.connections) == 1


async def test_silence_is_noticed_in_time_when_its_limit_is_the_shorter_one() -> None:
    limits = ExchangeLimits(total=FOR_EVER_S, first_byte=FOR_EVER_S, idle=0.1)
    client = HttpUpstream(connect_timeout_s=PATIENCE_S, limits=limits)

    async def stalls(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\na")
        await connection.until_closed()

    async with RawWorker(stalls) as worker, patience():
        answer = await client.send(at(worker), post())
        assert await answer.read() == b"a"
        with pytest.raises(StreamBroken, match="nothing came"):
            await answer.read()
    client.close()


async def test_an_early_answer_to_a_request_still_being_sent_is_not_reused(upstream: HttpUpstream) -> None:
    gone = asyncio.Event()

    async def refuse_early(connection: Connected) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")
        await connection.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
        await gone.wait()

    async with RawWorker(refuse_early) as worker:
        answer = await upstream.send(at(worker), post(os.urandom(32 * 1024 * 1024)))
        assert answer.status == 413
        await eventually(lambda: upstream.open_connections == 0)
        gone.set()


async def test_the_time_limit_holds_before_and_within_the_answer() -> None:
    async def silent(connection: Connected) -> None:
        await connection.until_closed()

    async def stalls(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await connection.until_closed()

    async def attempt(scale: float) -> None:
        limits = ExchangeLimits(total=0.2 * scale, first_byte=FOR_EVER_S, idle=FOR_EVER_S)
        client = HttpUpstream(connect_timeout_s=PATIENCE_S, limits=limits)
        async with RawWorker(silent, stalls) as worker, patience():
            with pytest.raises(UpstreamError, match="no complete answer") as caught:
                await client.send(at(worker), post())
            assert caught.value.failure is Failure.TIMEOUT
            answer = await client.send(at(worker), post())
            assert await answer.read() == b"abc"
            with pytest.raises(StreamBroken, match="no complete answer"):
                await answer.read()
            await eventually(lambda: client.open_connections == 0)
        client.close()

    await undisturbed(attempt, pause_s=0.05)


async def test_silence_before_the_answer() -> None:
    limits = ExchangeLimits(total=FOR_EVER_S, first_byte=0.2, idle=FOR_EVER_S)
    client = HttpUpstream(connect_timeout_s=PATIENCE_S, limits=limits)

    async def silent(connection: Connected) -> None:
        await connection.until_closed()

    async with RawWorker(silent) as worker, patience():
        with pytest.raises(UpstreamError, match=r"no answer began within 0\.2 s") as caught:
            await client.send(at(worker), post())
        assert caught.value.failure is Failure.TIMEOUT
    client.close()


async def test_silence_between_the_pieces_of_an_answer() -> None:
    """The answer is later than any of its pieces may be, and they take longer together."""

    async def attempt(scale: float) -> None:
        limits = ExchangeLimits(total=FOR_EVER_S, first_byte=FOR_EVER_S, idle=0.15 * scale)
        client = HttpUpstream(connect_timeout_s=PATIENCE_S, limits=limits)

        async def late(connection: Connected) -> None:
            await connection.read_request()
            await asyncio.sleep(0.25 * scale)
            await connection.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            for _ in range(6):
                await connection.send(b"3\r\nabc\r\n")
                await asyncio.sleep(0.05 * scale)
            await connection.until_closed()

        async with RawWorker(late) as worker, patience():
            answer = await client.send(at(worker), post())
            arrived = b""
            while len(arrived) < 18:
                arrived += await answer.read()
            assert arrived == b"abc" * 6, "a slow worker is not a silent one"
            with pytest.raises(StreamBroken, match=f"nothing came for {limits.idle:g} s"):
                await answer.read()
        client.close()

    await undisturbed(attempt, pause_s=0.04)


async def test_a_client_that_reads_slowly_is_not_the_workers_silence() -> None:
    async def flood(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 33554432\r\n\r\n")
        await connection.send(b"x" * 33554432)

    async def attempt(scale: float) -> None:
        limits = ExchangeLimits(total=FOR_EVER_S, first_byte=FOR_EVER_S, idle=0.1 * scale)
        client = HttpUpstream(connect_timeout_s=PATIENCE_S, limits=limits)
        async with RawWorker(flood) as worker, patience():
            answer = await client.send(at(worker), post())
            await asyncio.sleep(0.3 * scale)
            assert len(await body_of(answer)) == 33554432
        client.close()

    await undisturbed(attempt, pause_s=0.03)


@pytest.mark.parametrize("after_s", [0.0, 0.0002, 0.0005, 0.001, 0.0015, 0.002, 0.05])
async def test_cancelling_closes_the_connection(upstream: HttpUpstream, after_s: float) -> None:
    closed = asyncio.Event()

    async def watch(connection: Connected) -> None:
        try:
            await connection.until_closed()
        finally:
            closed.set()

    async with RawWorker(watch) as worker:
        task = asyncio.ensure_future(upstream.send(at(worker), post()))
        await asyncio.sleep(after_s)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.05)
        if worker.connections:
            await soon(closed.wait())
        await eventually(lambda: upstream.open_connections == 0)


class Begun:
    """A coroutine that has run to its first suspension already; to be awaited once."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self._work = work
        self._waited_for = work.send(None)

    def __await__(self) -> Generator[Any, Any, Any]:
        try:
            yield self._waited_for
            while True:
                yield self._work.send(None)
        except StopIteration as ended:
            return ended.value


async def test_who_is_cancelled_too_late_does_not_close_the_connection_of_the_next(upstream: HttpUpstream) -> None:
    arrived = asyncio.Event()

    async def answer_second(connection: Connected) -> None:
        await connection.read_request()
        arrived.set()
        await connection.read_request()
        await asyncio.sleep(0.05)
        await connection.send(OK)

    async with RawWorker(answer_second) as worker:
        first = asyncio.ensure_future(upstream.send(at(worker), post(b"1")))
        await soon(arrived.wait())
        (connection,) = next(iter(upstream._origins.values()))._all
        # All within one turn of the loop: the first is cancelled, its answer arrives, the second takes the connection.
        first.cancel()
        connection.data_received(OK)
        second = Begun(upstream.send(at(worker), post(b"2")))
        with pytest.raises(asyncio.CancelledError):
            await first
        async with patience():
            assert await body_of(await second) == b"{}"
        assert len(worker.connections) == 1


async def test_closing_the_client_fails_what_is_under_way() -> None:
    client = HttpUpstream(connect_timeout_s=PATIENCE_S, limits=PATIENT)
    arrived = asyncio.Event()

    async def half(connection: Connected) -> None:
        await connection.read_request()
        if connection.requests[0][1] == b"body":
            await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n")
        arrived.set()
        await connection.until_closed()

    async with RawWorker(half) as worker, patience():
        begun = await client.send(at(worker), post(b"body"))
        arrived.clear()
        waiting = asyncio.ensure_future(client.send(at(worker), post(b"head")))
        await soon(arrived.wait())
        client.close()
        with pytest.raises(UpstreamError):
            await waiting
        with pytest.raises(StreamBroken):
            await begun.read()


async def test_closing_an_unfinished_answer_closes_the_connection(upstream: HttpUpstream) -> None:
    closed = asyncio.Event()

    async def stream_forever(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        try:
            while True:
                await connection.send(b"3\r\nabc\r\n")
                await asyncio.sleep(0.001)
        finally:
            closed.set()

    async with RawWorker(stream_forever) as worker:
        answer = await upstream.send(at(worker), post())
        assert await answer.read()
        answer.close()
        await soon(closed.wait())
        await eventually(lambda: upstream.open_connections == 0)


async def test_a_slow_reader_holds_the_worker_back(upstream: HttpUpstream) -> None:
    sent = 0

    async def flood(connection: Connected) -> None:
        nonlocal sent
        await connection.read_request()
        await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 67108864\r\n\r\n")
        piece = b"x" * 65536
        for _ in range(1024):
            await connection.send(piece)
            sent += len(piece)

    async with RawWorker(flood) as worker:
        answer = await upstream.send(at(worker), post())
        await asyncio.sleep(0.3)
        held = sum(len(chunk) for chunk in answer._chunks)
        assert held <= HIGH_WATER + 256 * 1024
        assert sent < 32 * 1024 * 1024, "the rest waits in the worker, not here"
        assert len(await body_of(answer)) == 67108864


async def test_idle_connections_are_closed_and_their_origin_forgotten(
    upstream: HttpUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.upstream.client.IDLE_S", 0.05)
    monkeypatch.setattr("app.upstream.client.SWEEP_S", 0.05)
    async with RawWorker() as worker:
        await body_of(await upstream.send(at(worker), post()))
        assert upstream.open_connections == 1
        await eventually(lambda: upstream.open_connections == 0)
        await eventually(lambda: not upstream._origins)
        await body_of(await upstream.send(at(worker), post()))
        assert len(worker.connections) == 2


async def test_hop_by_hop_headers_stay_between_worker_and_gateway(upstream: HttpUpstream) -> None:
    head = (
        b"HTTP/1.1 200 OK\r\nConnection: X-Secret, keep-alive\r\nX-Secret: 1\r\nX-Kept: 2\r\ncontent-length: 0\r\n\r\n"
    )
    async with RawWorker(once(head)) as worker:
        answer = await upstream.send(at(worker), post())
        assert answer.headers == [(b"x-kept", b"2"), (b"content-length", b"0")]


@pytest.mark.parametrize(("size", "passes"), [(69_000, True), (71_000, False)])
async def test_the_size_of_an_answers_headers_is_the_operators_to_say(size: int, passes: bool) -> None:
    limits = ExchangeLimits(FOR_EVER_S, FOR_EVER_S, FOR_EVER_S, header_bytes=70_000)
    upstream = HttpUpstream(connect_timeout_s=PATIENCE_S, limits=limits)
    reply = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nmetadata: %s\r\n\r\n{}" % (b"m" * size)
    async with RawWorker(once(reply)) as worker:
        try:
            if passes:
                assert await body_of(await upstream.send(at(worker), post())) == b"{}"
            else:
                with pytest.raises(UpstreamError):
                    await upstream.send(at(worker), post())
        finally:
            upstream.close()
