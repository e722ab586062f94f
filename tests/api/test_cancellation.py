"""A request that is cancelled at each of its awaits gives everything back, whatever it was waiting for."""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any

import pytest

from app.api.endpoints import ENDPOINTS
from app.core.fleet.reasons import Outcome
from tests.api.conftest import Edge, StartEdge
from tests.fakes.raw_worker import OK, Connected, RawWorker
from tests.patience import eventually, soon

BODY = b'{"model": "m", "stream": true}'

STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class CancelledAt:
    """Drives a coroutine as a task does, and cancels its task when it suspends for the `place`-th time.

    is_late: not at once, but when what it waits for has just come, and nobody has taken it yet.
    """

    def __init__(self, work: Coroutine[Any, Any, None], place: int, *, is_late: bool) -> None:
        self._work = work
        self._place = place
        self._is_late = is_late
        self.was_cancelled = False

    def __await__(self) -> Generator[Any, Any, None]:
        suspended = 0
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                waited_for = self._work.throw(error) if error is not None else self._work.send(value)
            except StopIteration:
                return
            value = error = None
            suspended += 1
            if suspended == self._place:
                self.was_cancelled = True
                task = asyncio.current_task()
                assert task is not None
                if self._is_late and waited_for is not None:
                    waited_for.add_done_callback(lambda _, task=task: task.cancel())
                else:
                    asyncio.get_running_loop().call_soon(task.cancel)
            try:
                value = yield waited_for
            except BaseException as caught:
                error = caught


class Client:
    """The other end of the application: what it receives, and what became of what it sent. Every `send` suspends."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self._to_receive = [
            {"type": "http.request", "body": BODY[:10], "more_body": True},
            {"type": "http.request", "body": BODY[10:], "more_body": False},
        ]
        self.is_complete = asyncio.Event()
        self.closed = False

    async def receive(self) -> dict[str, Any]:
        await asyncio.sleep(0)
        if self._to_receive:
            return self._to_receive.pop(0)
        await self.is_complete.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await asyncio.sleep(0)
        assert not self.is_complete.is_set(), "nothing follows the end"
        assert (message["type"] == "http.response.start") is not bool(self.sent), "one head, before everything else"
        self.sent.append(message)
        if message["type"] == "http.response.body" and not message["more_body"]:
            self.is_complete.set()

    # The connection, as the edge's protocol offers it

    def abort(self) -> None:
        self.closed = True
        self.is_complete.set()

    def close_after_response(self) -> None: ...

    def linger_after_response(self, reason: object) -> None: ...


async def json_answer(connection: Connected) -> None:
    while True:
        await connection.read_request()
        await connection.send(OK)


async def stream_answer(connection: Connected) -> None:
    while True:
        await connection.read_request()
        await connection.send(STREAM)
        for _ in range(3):
            await asyncio.sleep(0.002)
            await connection.send(b"9\r\ndata: 1\n\n\r\n")
        await connection.send(b"0\r\n\r\n")


async def broken_stream(connection: Connected) -> None:
    await connection.read_request()
    await connection.send(STREAM + b"9\r\ndata: 1\n\n\r\n")
    await asyncio.sleep(0.002)
    connection.reset()


async def never_answers(connection: Connected) -> None:
    await connection.read_request()


async def late_stream(connection: Connected) -> None:
    while True:
        await connection.read_request()
        await asyncio.sleep(0.008)
        await connection.send(STREAM)
        await asyncio.sleep(0.008)
        await connection.send(b"9\r\ndata: 1\n\n\r\n0\r\n\r\n")


async def late_error(connection: Connected) -> None:
    while True:
        await connection.read_request()
        await asyncio.sleep(0.008)
        await connection.send(b"HTTP/1.1 500 Oh\r\ncontent-length: 2\r\n\r\n{")
        await asyncio.sleep(0.004)
        await connection.send(b"}")


SCRIPTS = {
    "json": json_answer,
    "stream": stream_answer,
    "broken": broken_stream,
    "none": never_answers,
    "late stream": late_stream,
    "late error": late_error,
}


@pytest.mark.parametrize("keepalive_s", [0.0, 0.003])
@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("is_first_dead", [False, True])
@pytest.mark.parametrize("script", SCRIPTS)
async def test_cancelled_anywhere(
    start_edge: StartEdge, script: str, is_first_dead: bool, is_late: bool, keepalive_s: float
) -> None:
    edge = await start_edge(sse_keepalive_s=keepalive_s)
    async with RawWorker() as dead, RawWorker(SCRIPTS[script]) as worker:
        if is_first_dead:
            edge.add(dead)
        edge.add(worker)
        if is_first_dead:
            assert dead._server is not None
            dead._server.close()
        endings = []
        for place in range(1, 200):
            endings.append(await run_once(edge, place, is_late))
            await edge.at_rest()
            assert edge.proxy.held.size == 0
            if endings[-1] is None:
                break
        assert endings[-1] is None, "at last it ran to its end without being cancelled"
        assert len(endings) > 5, "it was cancelled in many places"
        assert len(edge.told.records) == len(endings), "each one was accounted for once"
    await eventually(lambda: not [task for task in edge.tasks._running if task.get_name() == "keep-alive"])
    await eventually(lambda: edge.upstream.open_connections == 0)


async def run_once(edge: Edge, place: int, is_late: bool) -> bool | None:
    """None when the request ended before the place. Else: it was cancelled, and its client told."""
    client = Client()
    scope = {
        "type": "http",
        "method": "POST",
        "raw_path": b"/v1/completions",
        "query_string": b"",
        "http_version": "1.1",
        "headers": [(b"host", b"g"), (b"content-type", b"application/json")],
        "extensions": {"warmset": {"connection": client}},
    }
    work = CancelledAt(
        edge.proxy.serve(ENDPOINTS_BY_PATH["/v1/completions"], scope, client.receive, client.send),
        place,
        is_late=is_late,
    )
    await soon(run(work))
    if not work.was_cancelled:
        assert client.is_complete.is_set()
        return None
    record = edge.told.records[-1]
    assert record.outcome in (Outcome.FAILED, Outcome.SERVED, Outcome.CLIENT_GONE)
    return True


ENDPOINTS_BY_PATH = {endpoint.path: endpoint for endpoint in ENDPOINTS}


async def run(work: CancelledAt) -> None:
    await work
