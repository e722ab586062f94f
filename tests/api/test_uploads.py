"""Forms with files, on the wire: passed as they come, routed by a field, and ended in every way that there is."""

import asyncio
import json
from collections.abc import Callable

import pytest

from app.core.fleet.reasons import Failure, Outcome
from tests.api.conftest import Edge, StartEdge
from tests.api.raw import answer, body_of, headers_of, status_of
from tests.api.test_forms import FILE, MODEL, form, part
from tests.fakes.raw_worker import OK, Connected, RawWorker
from tests.patience import eventually

PATH = b"/v1/audio/transcriptions"
NAMED = part(b"model", b"m")
TYPE = b"content-type: multipart/form-data; boundary=bOuNd\r\n"
BIG = part(b"file", b"\x01" * 400_000, b'; filename="a.wav"')


def head(length: int | None = None, *, path: bytes = PATH, more: bytes = b"", kind: bytes = TYPE) -> bytes:
    framing = b"transfer-encoding: chunked\r\n" if length is None else b"content-length: %d\r\n" % length
    return b"POST %s HTTP/1.1\r\nhost: g\r\n%s%s%s\r\n" % (path, kind, framing, more)


def chunks(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces if piece) + b"0\r\n\r\n"


class Received:
    """A worker that keeps what it got, and answers when the body is over."""

    def __init__(self, reply: bytes = OK) -> None:
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.got = 0
        self._reply = reply

    async def __call__(self, connection: Connected) -> None:
        while True:
            head = await connection.reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            body = b""
            if b"transfer-encoding: chunked" in head:
                while size := int(await connection.reader.readuntil(b"\r\n"), 16):
                    body += (await connection.reader.readexactly(size + 2))[:-2]
                    self.got = len(body)
                await connection.reader.readexactly(2)
            else:
                length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
                while len(body) < length:
                    body += await connection.reader.read(min(65536, length - len(body)))
                    self.got = len(body)
                    if connection.reader.at_eof():
                        return
            self.bodies.append(body)
            await connection.send(self._reply)


async def ask(edge: Edge, data: bytes) -> bytes:
    talk = await edge.talk(data)
    raw = await talk.rest()
    talk.leave()
    return raw


def error_of(raw: bytes) -> tuple[int, str, str | None]:
    error = json.loads(body_of(raw))["error"]
    return status_of(raw), error["code"], error["param"]


CLOSE = b"connection: close\r\n"


@pytest.mark.parametrize("path", [PATH, b"/v1/audio/translations"])
@pytest.mark.parametrize("body", [form(NAMED, FILE), form(FILE, NAMED), form(NAMED, BIG), form(BIG, NAMED)])
async def test_a_form_arrives_as_it_was_sent(edge: Edge, body: bytes, path: bytes) -> None:
    got = Received()
    async with RawWorker(got) as worker:
        edge.add(worker)
        assert status_of(await ask(edge, head(len(body), path=path, more=CLOSE) + body)) == 200
        pieces = [body[start : start + 70_001] for start in range(0, len(body), 70_001)]
        assert status_of(await ask(edge, head(path=path, more=CLOSE) + chunks(*pieces))) == 200
        assert got.bodies == [body, body]
        assert all(TYPE in each for each in got.heads)
        assert b"content-length: %d\r\n" % len(body) in got.heads[0]
        await edge.at_rest()
        assert edge.proxy.held.size == 0
        assert [record.bytes_in for record in edge.told.records] == [len(body)] * 2
        assert [record.model for record in edge.told.records] == ["m", "m"]


async def test_with_the_model_first_it_passes_while_it_comes_and_hardly_anything_is_held(edge: Edge) -> None:
    got = Received()
    async with RawWorker(got) as worker:
        edge.add(worker)
        talk = await edge.talk(head(len(form(NAMED, BIG)), more=CLOSE) + NAMED + BIG[:200_000])
        await eventually(lambda: got.got >= 150_000)
        assert edge.proxy.held.size < 200_000
        talk.writer.write(form(BIG[200_000:-2] + b"\r\n"))
        assert status_of(await talk.rest()) == 200
        assert got.bodies == [form(NAMED, BIG)]


async def test_behind_the_file_it_is_held_until_the_model_is_known(edge: Edge) -> None:
    got = Received()
    async with RawWorker(got) as worker:
        edge.add(worker)
        talk = await edge.talk(head(len(form(BIG, NAMED)), more=CLOSE) + BIG)
        await eventually(lambda: edge.proxy.held.size == len(BIG))
        assert not got.heads
        talk.writer.write(form(NAMED))
        assert status_of(await talk.rest()) == 200
        await edge.at_rest()
        assert edge.proxy.held.size == 0


@pytest.mark.parametrize("parts", [(NAMED, FILE), (FILE, NAMED), (NAMED, BIG)])
async def test_an_alias_is_replaced_and_nothing_else(start_edge: StartEdge, parts: tuple[bytes, bytes]) -> None:
    edge = await start_edge(aliases={"whisper": "m"})
    got = Received()
    sent = form(*(MODEL if each is NAMED else each for each in parts))
    async with RawWorker(got) as worker:
        edge.add(worker)
        assert status_of(await ask(edge, head(len(sent), more=CLOSE) + sent)) == 200
        assert status_of(await ask(edge, head(more=CLOSE) + chunks(sent[:30], sent[30:]))) == 200
        assert got.bodies == [form(*parts)] * 2


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        (TYPE, form(FILE), (404, "model_not_found", "model")),
        (TYPE, form(part(b"model", b""), FILE), (404, "model_not_found", "model")),
        (TYPE, form(part(b"model", b"nobody"), FILE), (404, "model_not_found", "model")),
        (TYPE, form(FILE)[:-4], (400, "invalid_body", None)),
        (TYPE, b"{}", (400, "invalid_body", None)),
        (TYPE.replace(b"bOuNd", b"other"), form(NAMED, FILE), (400, "invalid_body", None)),
        (b"content-type: application/json\r\n", b'{"model":"m"}', (400, "invalid_body", None)),
        (b"", form(NAMED, FILE), (400, "invalid_body", None)),
        (b"content-type: multipart/form-data\r\n", form(NAMED, FILE), (400, "invalid_body", None)),
        (TYPE, form(part(b"model", b"x" * 2000), FILE), (400, "invalid_body", "model")),
    ],
)
async def test_what_no_worker_can_be_asked(
    edge: Edge, kind: bytes, body: bytes, expected: tuple[int, str, str | None]
) -> None:
    async with RawWorker() as worker:
        edge.add(worker)
        for data in (head(len(body), kind=kind, more=CLOSE) + body, head(kind=kind, more=CLOSE) + chunks(body)):
            assert error_of(await ask(edge, data)) == expected
        await edge.at_rest()
        assert not worker.requests
        assert edge.proxy.held.size == 0


@pytest.mark.parametrize("rest", [form(NAMED), form(part(b"x", b"y"))[:-4] + b"x" * 100, b"--bOuNd--\r\nmore"])
async def test_what_is_wrong_behind_the_model_never_becomes_a_whole_request(edge: Edge, rest: bytes) -> None:
    """The worker was asked already, but a request that is not complete is none."""
    got = Received()
    async with RawWorker(got) as worker:
        edge.add(worker)
        body = NAMED + FILE
        talk = await edge.talk(head(len(body) + len(rest) + 50) + body)
        await eventually(lambda: got.heads)
        talk.writer.write(rest + b" " * 50)
        assert error_of(await talk.rest())[:2] == (400, "invalid_body")
        await edge.at_rest()
        assert not got.bodies
        await eventually(lambda: worker.closed == 1)


@pytest.mark.parametrize("is_chunked", [True, False])
async def test_too_large(start_edge: StartEdge, is_chunked: bool) -> None:
    edge = await start_edge(max_body_bytes=300_000)
    got = Received()
    async with RawWorker(got) as worker:
        edge.add(worker)
        for body in (form(NAMED, BIG), form(BIG, NAMED)):
            data = head() + chunks(body[:200_000], body[200_000:]) if is_chunked else head(len(body)) + body
            assert error_of(await ask(edge, data))[:2] == (413, "body_too_large")
        await edge.at_rest()
        assert not got.bodies
        assert edge.proxy.held.size == 0


async def test_a_client_that_leaves_half_way_ends_it_all(edge: Edge) -> None:
    got = Received()
    async with RawWorker(got) as worker:
        edge.add(worker)
        for sent in (NAMED + BIG[:100_000], BIG[:100_000]):
            talk = await edge.talk(head(len(form(NAMED, BIG))) + sent)
            await eventually(lambda: got.got or edge.proxy.held.size)
            talk.leave()
            await edge.at_rest()
            await eventually(lambda: edge.proxy.held.size == 0)
        assert not got.bodies
        assert {record.outcome for record in edge.told.records} == {Outcome.CLIENT_GONE}


async def test_a_client_that_leaves_while_the_worker_listens_to_the_file(edge: Edge) -> None:
    async def thinks(connection: Connected) -> None:
        await connection.read_request()
        await connection.until_closed()

    async with RawWorker(thinks) as worker:
        edge.add(worker)
        body = form(NAMED, FILE)
        talk = await edge.talk(head(len(body)) + body)
        await eventually(lambda: worker.requests)
        talk.leave()
        await edge.at_rest()
        assert edge.told.records[-1].outcome is Outcome.CLIENT_GONE


@pytest.mark.parametrize("stops_reading", [True, False])
async def test_a_worker_that_answers_before_the_end_is_heard(edge: Edge, stops_reading: bool) -> None:
    async def refuses(connection: Connected) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")
        await connection.send(answer(b'{"error":"too long"}', status=413))
        if not stops_reading:
            await connection.until_closed()
        else:
            await asyncio.Event().wait()

    async with RawWorker(refuses) as worker:
        edge.add(worker)
        talk = await edge.talk(head(len(form(NAMED, BIG, BIG))) + NAMED + BIG)
        raw = await talk.rest()
        assert (status_of(raw), body_of(raw)) == (413, b'{"error":"too long"}')
        assert headers_of(raw)[b"connection"] == b"close"
        await edge.at_rest()
        assert edge.told.failures == []


async def test_a_worker_that_dies_meanwhile_is_not_replaced(edge: Edge) -> None:
    """Part of the file is gone with it."""

    async def dies(connection: Connected) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")
        await connection.reader.read(1000)
        connection.reset()

    async with RawWorker(dies) as one, RawWorker(dies) as other:
        edge.add(one)
        edge.add(other)
        raw = await ask(edge, head(len(form(NAMED, BIG)), more=CLOSE) + form(NAMED, BIG))
        assert error_of(raw)[:2] == (502, "worker_no_answer")
        assert len(one.connections) + len(other.connections) == 1
        await edge.at_rest()
        assert edge.told.failures == [Failure.NO_ANSWER]


async def test_one_that_cannot_be_reached_is_replaced(edge: Edge) -> None:
    got = Received()
    async with RawWorker() as gone:
        edge.add(gone)
    async with RawWorker(got) as worker:
        edge.add(worker)
        for _ in range(4):
            assert status_of(await ask(edge, head(len(form(NAMED, BIG)), more=CLOSE) + form(NAMED, BIG))) == 200
        assert got.bodies == [form(NAMED, BIG)] * 4
        await edge.at_rest()


@pytest.mark.parametrize(("parts", "asked"), [((NAMED, BIG), 1), ((BIG, NAMED), 2)])
async def test_what_passed_by_is_not_asked_of_another(edge: Edge, parts: tuple[bytes, bytes], asked: int) -> None:
    """A worker that takes no more: only a form that is held whole can go elsewhere."""

    def full() -> Callable[..., object]:
        return Received(answer(b"no", b"retry-after: 1", status=429))

    async with RawWorker(full()) as one, RawWorker(full()) as other:  # type: ignore[arg-type]
        edge.add(one)
        edge.add(other)
        raw = await ask(edge, head(len(form(*parts)), more=CLOSE) + form(*parts))
        assert (status_of(raw), body_of(raw)) == (429, b"no")
        assert len(one.connections) + len(other.connections) == asked
        await edge.at_rest()


async def test_no_more_is_read_of_a_client_than_the_worker_takes(start_edge: StartEdge) -> None:
    edge = await start_edge(max_body_bytes=1 << 30)
    go_on = asyncio.Event()

    async def slow(connection: Connected) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")
        connection.reader._transport.pause_reading()  # type: ignore[attr-defined]
        await go_on.wait()
        connection.reader._transport.resume_reading()  # type: ignore[attr-defined]
        await connection.until_closed()

    async with RawWorker(slow) as worker:
        edge.add(worker)
        total = 30_000_000
        talk = await edge.talk(head(total + len(NAMED)) + NAMED)
        sent = 0
        block = part(b"file", b"\x01" * 65_536, b'; filename="a"')[:65_536]
        while sent < total and talk.writer.transport.get_write_buffer_size() < 4_000_000:
            talk.writer.write(block if not sent else b"\x01" * 65_536)
            sent += 65_536
            await asyncio.sleep(0)
            if talk.writer.transport.get_write_buffer_size() > 1_000_000:
                await asyncio.sleep(0.05)
        assert sent < total, "it was all taken, though nobody reads it"
        talk.leave()
        go_on.set()
        await edge.at_rest()


async def test_a_stream_of_events_as_answer(edge: Edge) -> None:
    events = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\ndata: [DONE]\n\n'
    reply = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(events) + events
    async with RawWorker(Received(reply)) as worker:
        edge.add(worker)
        body = form(NAMED, part(b"stream", b"true"), FILE)
        assert body_of(await ask(edge, head(len(body), more=CLOSE) + body)) == events
        await edge.at_rest()
