"""How an answer ends that is not whole, by what its head promised."""

import pytest

from app.core.fleet.reasons import Outcome
from tests.api.conftest import Edge
from tests.fakes.raw_worker import Connected, RawWorker

BODY = b'{"model": "m", "stream": true}'
EVENTS = b"data: 1\n\ndata: 2\n\n"


def post(version: bytes = b"1.1") -> bytes:
    head = b"POST /v1/completions HTTP/%s\r\nhost: g\r\ncontent-length: %d\r\n\r\n"
    return head % (version, len(BODY)) + BODY


def breaks(headers: bytes, body: bytes = EVENTS):  # type: ignore[no-untyped-def]
    """A worker that dies after `body`."""

    async def script(connection: Connected) -> None:
        await connection.read_request()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n" + headers
        chunk = b"%x\r\n%s\r\n" % (len(body), body) if b"chunked" in headers else body
        await connection.send(head + b"\r\n" + chunk)

    return script


CHUNKED = b"transfer-encoding: chunked\r\n"


async def test_a_client_of_http_1_0_is_told_of_a_break(edge: Edge, caplog: pytest.LogCaptureFixture) -> None:
    async with RawWorker(breaks(CHUNKED)) as worker:
        edge.add(worker)
        head, body = (await (await edge.talk(post(b"1.0"))).rest()).split(b"\r\n\r\n", 1)
        assert b"transfer-encoding" not in head
        assert body.startswith(EVENTS + b'data: {"error"')
        assert body.endswith(b"}\n\n")
        await edge.at_rest()
        assert edge.told.records[0].refusal == "stream_broken"
        assert not [record for record in caplog.records if record.name == "uvicorn.error"]


@pytest.mark.parametrize(
    "headers",
    [b"content-length: 1000\r\n", b"content-encoding: gzip\r\n" + CHUNKED],
    ids=["a length", "compressed"],
)
async def test_where_no_event_can_follow_the_connection_breaks(
    edge: Edge, headers: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with RawWorker(breaks(headers)) as worker:
        edge.add(worker)
        raw = b""
        try:
            talk = await edge.talk(post())
            while piece := await talk.reader.read(65536):
                raw += piece
        except ConnectionError:
            pass
        body = raw.split(b"\r\n\r\n", 1)[1]
        assert b"worker_stream_broken" not in body
        assert not body.endswith(b"0\r\n\r\n"), "what is not whole must not look so"
        await edge.at_rest()
        record = edge.told.records[0]
        assert (record.outcome, record.refusal) == (Outcome.BROKEN, "stream_broken")
        assert not [record for record in caplog.records if record.name == "uvicorn.error"]
