"""What workers do that they should not, as a client sees it."""

import asyncio
import json

import httpx
import pytest

from app.core.fleet.reasons import Failure, Outcome
from app.upstream.connection import MAX_HEADER_BYTES, MAX_HEADERS
from tests.api.conftest import Edge
from tests.api.raw import STREAM_HEAD, chunk, dechunk, post
from tests.fakes.raw_worker import Connected, RawWorker

BODY = b'{"model": "m"}'

POST = b"POST /v1/completions HTTP/1.1\r\nhost: g\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY)


def says(answer: bytes, *, ends: bool = False):  # type: ignore[no-untyped-def]
    async def script(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(answer)
        if not ends:
            await connection.until_closed()

    return script


@pytest.mark.parametrize(
    "headers",
    [b"metadata: %s\r\n" % (b"m" * (MAX_HEADER_BYTES + 1)), b"x: y\r\n" * (MAX_HEADERS + 1)],
    ids=["bytes", "number"],
)
async def test_more_headers_than_a_worker_may_send(edge: Edge, headers: bytes) -> None:
    answer = b"HTTP/1.1 200 OK\r\n%scontent-length: 2\r\n\r\nok" % headers
    async with RawWorker(says(answer)) as worker:
        edge.add(worker)
        async with httpx.AsyncClient() as client:
            got = await client.post(edge.url + "/v1/completions", content=BODY)
        assert got.status_code == 502
        error = got.json()["error"]
        assert error["code"] == "worker_no_answer"
        assert "header block of more than 1048576 bytes or 1000 headers" in error["message"]
        await edge.at_rest()
        assert edge.upstream.open_connections == 0
        assert edge.told.failures == [Failure.NO_ANSWER]


async def test_less_than_its_length_breaks_the_connection(edge: Edge) -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{}"
    async with RawWorker(says(answer, ends=True)) as worker:
        edge.add(worker)
        async with httpx.AsyncClient() as client:
            with pytest.raises(httpx.RemoteProtocolError):
                await client.post(edge.url + "/v1/completions", content=BODY)
        await edge.at_rest()
        record = edge.told.records[0]
        assert (record.outcome, record.refusal) == (Outcome.BROKEN, "stream_broken")


CLOSED_AT_THE_END = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: "


@pytest.mark.parametrize("kind", [b"application/json", b"text/event-stream"])
async def test_a_body_that_ends_with_its_connection_is_not_whole_when_that_is_reset(edge: Edge, kind: bytes) -> None:
    async def resets(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(CLOSED_AT_THE_END + kind + b'\r\n\r\ndata: {"a":1}\n\n')
        await go_on.wait()
        connection.reset()

    go_on = asyncio.Event()
    async with RawWorker(resets) as worker:
        edge.add(worker)
        talk = await edge.talk(post())
        raw = await talk.until(b"\n\n")
        go_on.set()
        raw += await talk.rest()
        if kind == b"text/event-stream":
            assert raw.count(b"worker_stream_broken") == 1
        else:
            assert not raw.endswith(b"0\r\n\r\n"), "a clean end"
        await edge.at_rest()
        assert edge.told.records[0].outcome is Outcome.BROKEN


async def test_a_stream_that_ends_inside_an_event_is_not_whole_whatever_ends_it(edge: Edge) -> None:
    answer = CLOSED_AT_THE_END + b'text/event-stream\r\n\r\ndata: {"a":1}\n\ndata: {"id'
    async with RawWorker(says(answer, ends=True)) as worker:
        edge.add(worker)
        raw = await (await edge.talk(post())).rest()
        assert raw.count(b"worker_stream_broken") == 1
        assert b'{"id' not in raw
        await edge.at_rest()


@pytest.mark.parametrize(
    ("path", "last"),
    [
        (b"/v1/completions", b"data: [DONE]\n\n"),
        (b"/v1/messages", b'event: message_stop\ndata: {"type":"message_stop"}\n\n'),
        (b"/v1/responses", b'event: response.completed\ndata: {"type":"response.completed"}\n\n'),
    ],
)
async def test_a_stream_that_said_that_it_is_complete_is(edge: Edge, path: bytes, last: bytes) -> None:
    """Its worker leaves without the last chunk."""
    async with RawWorker(says(STREAM_HEAD + chunk(b"data: 1\n\n") + chunk(last), ends=True)) as worker:
        edge.add(worker)
        raw = await (await edge.talk(post(path=path))).rest()
        assert dechunk(raw.split(b"\r\n\r\n", 1)[1]) == b"data: 1\n\n" + last
        assert raw.endswith(b"0\r\n\r\n")
        await edge.at_rest()
        assert (edge.told.outcomes, edge.told.records[0].refusal) == ([Outcome.SERVED], "")


async def test_more_than_its_length_is_dropped_and_its_connection_not_used_again(edge: Edge) -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}more"
    async with RawWorker(says(answer)) as worker:
        edge.add(worker)
        async with httpx.AsyncClient() as client:
            for _ in range(2):
                got = await client.post(edge.url + "/v1/completions", content=BODY)
                assert (got.status_code, got.content) == (200, b"{}")
                await edge.at_rest()
        assert len(worker.connections) == 2


@pytest.mark.parametrize(
    "framing", [b"content-length: 2\r\ncontent-length: 3\r\n", b"content-length: 2\r\ntransfer-encoding: chunked\r\n"]
)
async def test_two_lengths_are_no_answer(edge: Edge, framing: bytes) -> None:
    async with RawWorker(says(b"HTTP/1.1 200 OK\r\n%s\r\n{}" % framing)) as worker:
        edge.add(worker)
        talk = await edge.talk(POST)
        head = await talk.until(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 502 ")
        body = await talk.until(b"}}")
        assert json.loads(body)["error"]["code"] == "worker_no_answer"
        await edge.at_rest()


@pytest.mark.parametrize("status", [401, 403])
async def test_a_worker_that_refuses_our_credentials_is_told_of_and_not_marked(
    edge: Edge, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with RawWorker(says(b"HTTP/1.1 %d X\r\ncontent-length: 2\r\n\r\nno" % status)) as worker:
        edge.add(worker)
        async with httpx.AsyncClient() as client:
            got = await client.post(edge.url + "/v1/completions", content=BODY)
        assert (got.status_code, got.content) == (status, b"no")
        await edge.at_rest()
    (logged,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert logged.message == "worker refuses the gateway's own credentials"
    assert not edge.told.marks
