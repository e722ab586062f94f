"""Requests that a client sends before it has its answer, clients that leave meanwhile, and what follows a refusal."""

import asyncio
import json
import socket
from dataclasses import replace
from typing import Any

import pytest

from app.api.errors import EdgeReason
from app.api.listener import KEEP_ALIVE_S
from app.core.fleet.reasons import Outcome
from tests.api.conftest import PATIENT, Edge, StartEdge
from tests.fakes.raw_worker import OK, Connected, RawWorker
from tests.patience import eventually, soon

BODY = b'{"model": "m"}'


def post(body: bytes = BODY, headers: bytes = b"", path: bytes = b"/v1/completions") -> bytes:
    return b"POST %s HTTP/1.1\r\nhost: g\r\n%scontent-length: %d\r\n\r\n" % (path, headers, len(body)) + body


def statuses(raw: bytes) -> list[int]:
    return [int(part[:3]) for part in raw.split(b"HTTP/1.1 ")[1:]]


def connections_of(edge: Edge) -> list[Any]:
    """The gateway's side of its clients' connections."""
    assert edge.listener._server is not None
    return list(edge.listener._server.server_state.connections)


class Gate:
    """A worker's script that answers each request once it may, and notes when its connection ends."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.closed = asyncio.Event()

    async def __call__(self, connection: Connected) -> None:
        try:
            while True:
                await connection.read_request()
                self.asked.set()
                answering = asyncio.ensure_future(self.may_answer.wait())
                leaving = asyncio.ensure_future(connection.reader.read(1))
                await asyncio.wait([answering, leaving], return_when=asyncio.FIRST_COMPLETED)
                answering.cancel()
                if leaving.done():
                    return
                leaving.cancel()
                await asyncio.sleep(0)
                await connection.send(OK)
        finally:
            self.closed.set()


@pytest.mark.parametrize("is_split", [True, False])
async def test_a_client_that_sent_ahead_and_leaves_frees_the_worker(edge: Edge, is_split: bool) -> None:
    gate = Gate()
    async with RawWorker(gate) as worker:
        edge.add(worker)
        talk = await edge.talk(post() if is_split else post() + post())
        await soon(gate.asked.wait())
        if is_split:
            talk.writer.write(post())
            await asyncio.sleep(0.03)
        talk.leave()
        await soon(gate.closed.wait())
        await edge.at_rest()
        assert edge.told.records[0].outcome is Outcome.CLIENT_GONE
        assert len(worker.requests) == 1


@pytest.mark.parametrize("number", [2, 5, 60])
@pytest.mark.parametrize("pause_s", [0.0, 0.0005])
async def test_requests_sent_ahead_are_answered_in_turn(edge: Edge, number: int, pause_s: float) -> None:
    async with RawWorker() as worker:
        edge.add(worker)
        bodies = [json.dumps({"model": "m", "number": place}).encode() for place in range(number)]
        talk = await edge.talk(b"")
        for place, body in enumerate(bodies):
            talk.writer.write(post(body, b"connection: close\r\n" if place == number - 1 else b""))
            if pause_s:
                await asyncio.sleep(pause_s)
        assert statuses(await talk.rest()) == [200] * number
        assert [body for _, body in worker.requests] == bodies


async def test_more_than_is_held_is_left_in_the_kernel_and_served_later(edge: Edge) -> None:
    gate = Gate()
    body = b'{"model": "m", "x": "%s"}' % (b"x" * 50_000)
    async with RawWorker(gate) as worker:
        edge.add(worker)
        talk = await edge.talk(post())
        await soon(gate.asked.wait())
        for place in range(8):
            talk.writer.write(post(body, b"connection: close\r\n" if place == 7 else b""))
        await asyncio.sleep(0.05)
        gate.may_answer.set()
        assert statuses(await talk.rest()) == [200] * 9
        assert [sent for _, sent in worker.requests] == [BODY, *[body] * 8]


async def test_a_flood_of_tiny_requests_ends(edge: Edge) -> None:
    talk = await edge.talk(b"GET /ping HTTP/1.1\r\nhost: g\r\n\r\n" * 4000)
    got = statuses(await talk.rest())
    assert got[-1] == 503
    assert len(got) < 4000


@pytest.mark.parametrize("is_split", [True, False])
@pytest.mark.parametrize(
    ("bad", "status"),
    [
        (b"NONSENSE\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\n\r\n", 400),
        (b"GET /x HTTP/1.1\r\nhost: g\r\nx: %s\r\n\r\n" % (b"y" * 40_000), 431),
    ],
)
async def test_what_is_wrong_with_the_next_request_does_not_touch_this_one(
    edge: Edge, bad: bytes, status: int, is_split: bool
) -> None:
    gate = Gate()
    async with RawWorker(gate) as worker:
        edge.add(worker)
        talk = await edge.talk(post() if is_split else post() + bad)
        await soon(gate.asked.wait())
        if is_split:
            talk.writer.write(bad)
        await asyncio.sleep(0.03)
        gate.may_answer.set()
        assert statuses(await talk.rest()) == [200, status]
        await edge.at_rest()
        assert edge.told.records[0].outcome is Outcome.SERVED


async def test_half_a_head_sent_ahead_has_its_time_from_the_answer_on(start_edge: StartEdge) -> None:
    refused: list[EdgeReason] = []
    limits = replace(PATIENT, on_refused=refused.append)
    edge = await start_edge(edge_limits=limits)
    gate = Gate()
    async with RawWorker(gate) as worker:
        edge.add(worker)
        talk = await edge.talk(post())
        await soon(gate.asked.wait())
        (connection,) = connections_of(edge)
        connection.limits = replace(limits, head_timeout_s=0.05)
        talk.writer.write(b"POST /v1/comp")
        await eventually(lambda: connection._ahead)
        await asyncio.sleep(0.2)
        assert not refused, "the gateway is at work, the client need not be"
        gate.may_answer.set()
        assert statuses(await talk.rest()) == [200, 408]


async def test_a_broken_stream_of_one_that_sent_ahead_ends_its_own_answer(edge: Edge) -> None:
    async def breaks(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        await connection.send(b"9\r\ndata: 1\n\n\r\n")
        # Not by a reset: what it overtakes is lost.

    async with RawWorker(breaks) as worker:
        edge.add(worker)
        raw = await (await edge.talk(post() + post())).rest()
        assert statuses(raw) == [200], "the second one is not begun"
        assert b"worker_stream_broken" in raw
        assert raw.endswith(b"0\r\n\r\n")
        await edge.at_rest()


async def test_half_a_close_counts_as_leaving(edge: Edge) -> None:
    gate = Gate()
    async with RawWorker(gate) as worker:
        edge.add(worker)
        talk = await edge.talk(post())
        await soon(gate.asked.wait())
        talk.writer.write_eof()
        await soon(gate.closed.wait())
        await edge.at_rest()
        assert edge.told.records[0].outcome is Outcome.CLIENT_GONE


async def test_trailers_are_dropped(edge: Edge) -> None:
    chunked = b"e\r\n%s\r\n0\r\nx-warmset-key: late\r\nx-vendor: late\r\ncookie: late\r\n\r\n" % BODY
    async with RawWorker() as worker:
        edge.add(worker)
        head = b"POST /v1/completions HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
        assert statuses(await (await edge.talk(head + chunked)).rest()) == [200]
        assert b"late" not in worker.requests[0][0]
        assert worker.requests[0][1] == BODY


@pytest.mark.parametrize("flood", [b"x: y\r\n", b"1;" + b"e" * 500], ids=["trailers", "chunk extension"])
async def test_framing_without_a_body_ends(edge: Edge, flood: bytes) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n"
    talk = await edge.talk(head + (b"0\r\n" if flood.startswith(b"x") else b""))
    raw = b""
    try:
        for _ in range(200):
            talk.writer.write(flood * 100)
            await soon(talk.writer.drain())
            await asyncio.sleep(0)
        raw = await talk.rest()
    except ConnectionError:
        pass  # refused while it was still sending
    assert not raw or statuses(raw) == [431]
    await eventually(lambda: edge.told.records)
    assert edge.told.records[0].status == 431


async def test_chunks_of_one_byte_are_a_body(edge: Edge) -> None:
    body = b'{"model": "m", "x": "%s"}' % (b"x" * 30_000)
    head = b"POST /v1/completions HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    async with RawWorker() as worker:
        edge.add(worker)
        chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
        assert statuses(await (await edge.talk(head + chunks + b"0\r\n\r\n")).rest()) == [200]
        assert worker.requests[0][1] == body


@pytest.mark.parametrize("sent", [0, 10_000, 20_000_000])
@pytest.mark.parametrize("is_chunked", [True, False])
async def test_a_client_that_is_refused_while_it_sends_can_read_why(
    start_edge: StartEdge, is_chunked: bool, sent: int
) -> None:
    edge = await start_edge(max_body_bytes=1000)
    length = b"transfer-encoding: chunked" if is_chunked else b"content-length: 30000000"
    start = b"1c9c380\r\n" if is_chunked else b""
    talk = await edge.talk(b"POST /v1/completions HTTP/1.1\r\nhost: g\r\n" + length + b"\r\n\r\n" + start)
    if is_chunked and sent == 0:
        sent = 1001
    for _ in range(max(1, sent // 100_000)):
        talk.writer.write(b" " * min(sent, 100_000))
        await talk.writer.drain()
    raw = await talk.rest()
    assert statuses(raw) == [413]
    assert raw.endswith(b"}")
    assert b"connection: close" in raw


async def test_expect_is_not_answered_with_100_when_the_request_is_refused(start_edge: StartEdge) -> None:
    edge = await start_edge(keys=("k",), max_body_bytes=1000)
    big = b"POST /v1/completions HTTP/1.1\r\nhost: g\r\nexpect: 100-continue\r\n%scontent-length: 9999\r\n\r\n"
    assert statuses(await (await edge.talk(big % b"")).rest()) == [401]
    assert statuses(await (await edge.talk(big % b"authorization: Bearer k\r\n")).rest()) == [413]


async def test_expect_does_not_reach_the_worker(edge: Edge) -> None:
    async with RawWorker() as worker:
        edge.add(worker)
        talk = await edge.talk(post(b"", b"expect: 100-continue\r\n").replace(b"length: 0", b"length: 14"))
        await talk.until(b"100 Continue\r\n\r\n")
        talk.writer.write(BODY)
        assert b"200 OK" in await talk.until(b"{}")
        assert b"expect" not in worker.requests[0][0]


async def test_blank_lines_between_requests_do_not_keep_a_connection_for_ever(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = await edge.talk(b"GET /ping HTTP/1.1\r\nhost: g\r\n\r\n")
    await talk.until(b"}}")
    monkeypatch.setattr("app.api.edge.EdgeProtocol.timeout_keep_alive", 0.1, raising=False)
    for connection in connections_of(edge):
        connection.timeout_keep_alive = 0.1
    talk.writer.write(b"\r\n")
    assert await talk.rest() == b""


async def test_an_idle_connection_is_kept_longer_than_proxies_keep_theirs(edge: Edge) -> None:
    talk = await edge.talk(b"GET /ping HTTP/1.1\r\nhost: g\r\n\r\n")
    await talk.until(b"}}")
    [connection] = edge.listener._server.server_state.connections  # type: ignore[union-attr]
    ends = connection.timeout_keep_alive_task
    assert ends is not None
    assert ends.when() - asyncio.get_running_loop().time() > 30, "it is far from over"
    assert connection.timeout_keep_alive == KEEP_ALIVE_S == 75


async def test_a_closing_connection_whose_client_takes_nothing_is_cut(start_edge: StartEdge) -> None:
    refused: asyncio.Queue[EdgeReason] = asyncio.Queue()
    edge = await start_edge(edge_limits=replace(PATIENT, write_stall_s=0.2, on_refused=refused.put_nowait))

    async def large(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 30000\r\n\r\n" + b"x" * 30000)
        await connection.until_closed()

    async with RawWorker(large) as worker:
        edge.add(worker)
        # Kernel buffers so small that the rest of the answer waits in ours, below the mark at which writing pauses.
        stuck = await edge.talk(b"", receive_buffer=2048)
        await eventually(lambda: connections_of(edge))
        stuck.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for connection in connections_of(edge):
            connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2048)
        stuck.writer.write(post(headers=b"connection: close\r\n"))
        assert await soon(refused.get()) is EdgeReason.WRITE_STALL
        await edge.at_rest()
        await eventually(lambda: not connections_of(edge))


async def test_half_a_body_sent_ahead_has_its_time_from_the_answer_on(start_edge: StartEdge) -> None:
    edge = await start_edge(edge_limits=replace(PATIENT, body_window_s=0.1))
    talk = await edge.talk(b"GET /v1/models HTTP/1.1\r\nhost: g\r\n\r\n" + post()[:-1])
    assert statuses(await talk.rest()) == [200, 408]


async def test_one_upgrade_after_another(edge: Edge) -> None:
    upgrade = b"connection: upgrade\r\nupgrade: h2c\r\n"
    async with RawWorker() as worker:
        edge.add(worker)
        get = b"GET /v1/models HTTP/1.1\r\nhost: g\r\n" + upgrade + b"\r\n"
        last = post(headers=b"connection: close, upgrade\r\nupgrade: h2c\r\n")
        raw = await (await edge.talk(post(headers=upgrade) + get + post(headers=upgrade) + last)).rest()
        assert statuses(raw) == [200] * 4
        assert [body for _, body in worker.requests] == [BODY] * 3


async def test_nonsense_after_an_upgrade(edge: Edge) -> None:
    upgrade = b"connection: upgrade\r\nupgrade: h2c\r\n"
    async with RawWorker() as worker:
        edge.add(worker)
        raw = await (await edge.talk(post(headers=upgrade) + b"NONSENSE\r\n\r\n")).rest()
        assert statuses(raw) == [200, 400]
