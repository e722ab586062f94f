"""A batch that several workers answer is one request to its client, whatever becomes of its parts."""

import asyncio
import json
import logging
from typing import Any

import pytest

from app.core.fleet.reasons import Outcome
from tests.api.batched import answer, engine
from tests.api.conftest import Edge, StartEdge
from tests.api.raw import answer as said
from tests.api.raw import body_of, headers_of, post, status_of
from tests.fakes.raw_worker import Connected, RawWorker
from tests.patience import eventually

PATH = b"/v1/embeddings"
INPUTS = [f"text {number}" for number in range(10)]


def batch(encoding: str = "float", **more: Any) -> bytes:
    return json.dumps({"model": "m", "input": INPUTS, "encoding_format": encoding, **more}).encode()


async def ask(edge: Edge, body: bytes, *headers: bytes, path: bytes = PATH) -> bytes:
    talk = await edge.talk(post(body, *headers, path=path))
    return await talk.rest()


def code_of(raw: bytes) -> tuple[int, str]:
    return status_of(raw), json.loads(body_of(raw))["error"]["code"]


@pytest.mark.parametrize("encoding", ["float", "base64", "bytes", "bytes_only"])
async def test_the_answer_is_the_one_that_one_worker_gives(start_edge: StartEdge, encoding: str) -> None:
    edge = await start_edge(split_batches=4)
    async with RawWorker(engine) as one, RawWorker(engine) as other:
        edge.add(one)
        edge.add(other)
        raw = await ask(edge, batch(encoding), b"x-request-id: mine", b"x-session-id: all-to-one")
        headers, body = answer(batch(encoding))
        assert (status_of(raw), body_of(raw)) == (200, body)
        got = headers_of(raw)
        assert {name: got.get(name) for name, _ in headers} == dict(headers)
        asked = [request for worker in (one, other) for request in worker.requests]
        assert sorted(len(json.loads(part)["input"]) for _, part in asked) == [3, 3, 4]
        assert sorted(headers_of(head)[b"x-request-id"] for head, _ in asked) == [b"mine", b"mine.1", b"mine.2"]
        assert all(worker.requests for worker in (one, other)), "both had something to do"
        workers = got[b"x-warmset-worker"].decode().split(", ")
        assert set(workers) == set(edge.router.workers)
        await edge.at_rest()
        record = edge.told.records[0]
        assert (record.outcome, record.bytes_out, record.status) == (Outcome.SERVED, len(body), 200)
        if encoding != "bytes_only":
            assert record.prompt_tokens == sum(map(len, INPUTS))
        assert edge.told.outcomes == [Outcome.SERVED] * 3
        assert edge.proxy.held.size == 0


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (json.dumps({"model": "m", "input": INPUTS[:4]}).encode(), PATH),
        (json.dumps({"model": "m", "input": list(range(50))}).encode(), PATH),
        (json.dumps({"model": "m", "prompt": INPUTS}).encode(), b"/v1/completions"),
    ],
)
async def test_what_is_not_cut_reaches_one_worker_untouched(start_edge: StartEdge, body: bytes, path: bytes) -> None:
    edge = await start_edge(split_batches=4)
    async with RawWorker() as one, RawWorker() as other:
        edge.add(one)
        edge.add(other)
        await ask(edge, body, path=path)
        assert [request[1] for request in (*one.requests, *other.requests)] == [body]


async def test_for_one_worker_alone_nothing_is_cut(start_edge: StartEdge) -> None:
    edge = await start_edge(split_batches=4)
    async with RawWorker(engine) as worker:
        edge.add(worker)
        assert status_of(await ask(edge, batch())) == 200
        assert [body for _, body in worker.requests] == [batch()]


async def silent(connection: Connected) -> None:
    await connection.read_request()
    await connection.until_closed()


def once(reply: bytes) -> Any:
    async def script(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(reply)

    return script


WRONG = json.dumps({"data": [], "usage": {}}).encode()
JSON = b"content-type: application/json"
NO_SUCH = said(b'{"error":{"message":"too long","type":"BadRequestError","code":400}}', JSON, status=400)


async def test_an_error_to_one_part_is_the_answer_to_all(start_edge: StartEdge) -> None:
    edge = await start_edge(split_batches=5)
    async with RawWorker(once(NO_SUCH)) as one, RawWorker(silent) as other:
        edge.add(one)
        edge.add(other)
        raw = await ask(edge, batch())
        assert (status_of(raw), body_of(raw)) == (400, NO_SUCH.partition(b"\r\n\r\n")[2])
        assert headers_of(raw)[b"content-type"] == b"application/json"
        await eventually(lambda: other.closed == 1)
        await edge.at_rest()
        assert sorted(edge.told.outcomes) == sorted([Outcome.CLIENT_GONE, Outcome.SERVED]), "one was given up"
        assert edge.told.records[0].status == 400


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (said(WRONG, JSON), (502, "parts_unfit")),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{", (502, "worker_stream_broken")),
        (b"", (502, "worker_no_answer")),
    ],
)
async def test_a_part_that_fails_fails_the_whole(start_edge: StartEdge, reply: bytes, code: tuple[int, str]) -> None:
    edge = await start_edge(split_batches=5)
    async with RawWorker(engine) as one, RawWorker(once(reply)) as other:
        edge.add(one)
        edge.add(other)
        assert code_of(await ask(edge, batch())) == code
        await edge.at_rest()
        assert edge.proxy.held.size == 0


async def test_a_part_whose_worker_is_gone_goes_to_another(start_edge: StartEdge) -> None:
    edge = await start_edge(split_batches=5)
    async with RawWorker(engine) as one:
        async with RawWorker(engine) as gone:
            edge.add(one)
            edge.add(gone)
        raw = await ask(edge, batch())
        assert body_of(raw) == answer(batch())[1]
        assert len(one.requests) == 2


async def test_a_client_that_leaves_ends_all_parts(start_edge: StartEdge) -> None:
    edge = await start_edge(split_batches=2)
    async with RawWorker(silent) as one, RawWorker(silent) as other:
        edge.add(one)
        edge.add(other)
        talk = await edge.talk(post(batch(), path=PATH))
        await eventually(
            lambda: len(one.requests) + len(other.requests) == 4,
        )
        await asyncio.sleep(0.05)
        assert len(one.requests) + len(other.requests) == 4, "two for each worker; the fifth has yet to come"
        talk.leave()
        await eventually(lambda: one.closed + other.closed == 4)
        await edge.at_rest()
        assert edge.told.outcomes == [Outcome.CLIENT_GONE] * 4
        assert edge.told.records[0].outcome is Outcome.CLIENT_GONE
        assert edge.proxy.held.size == 0


async def test_answers_are_held_within_the_limit(start_edge: StartEdge) -> None:
    async def endless(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n")
        while True:
            await connection.send(b"x" * 65536)
            await asyncio.sleep(0)

    edge = await start_edge(split_batches=5, max_held_bytes=1_000_000)
    async with RawWorker(endless) as one, RawWorker(endless) as other:
        edge.add(one)
        edge.add(other)
        raw = await ask(edge, batch())
        assert code_of(raw) == (503, "batch_too_large")
        assert headers_of(raw)[b"retry-after"] == b"1"
        await edge.at_rest()
        assert edge.proxy.held.size == 0


async def test_a_large_answer_arrives_whole(start_edge: StartEdge) -> None:
    """More than is passed on at a time."""
    octets = bytes(range(256)) * 10_000

    async def large(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(said(octets, b"content-type: application/octet-stream"))

    edge = await start_edge(split_batches=5)
    async with RawWorker(large) as one, RawWorker(large) as other:
        edge.add(one)
        edge.add(other)
        assert body_of(await ask(edge, batch("bytes_only"))) == octets * 2


def metadata(size: int) -> bytes:
    return said(b"octets", b"content-type: application/octet-stream", b"metadata: %s" % (b"x" * size))


async def test_a_metadata_header_that_clients_cannot_read_is_logged_once(
    edge: Edge, caplog: pytest.LogCaptureFixture
) -> None:
    async def growing(connection: Connected) -> None:
        for size in (8192, 9000, 9001, 70_000, 70_001, 8192, 9000):
            await connection.read_request()
            await connection.send(metadata(size))

    async with RawWorker(growing) as worker:
        edge.add(worker)
        with caplog.at_level(logging.WARNING, "warmset.api"):
            for _ in range(7):
                assert status_of(await ask(edge, batch("bytes"))) == 200
        told = [record for record in caplog.records if "metadata" in record.message]
        assert [record.__dict__["bytes"] for record in told] == [9000, 70_000]


async def test_an_operator_may_have_it_refused_with_advice(start_edge: StartEdge) -> None:
    edge = await start_edge(max_metadata_bytes=8192)
    async with RawWorker(once(metadata(8192)), once(metadata(8193))) as worker:
        edge.add(worker)
        assert status_of(await ask(edge, batch("bytes"))) == 200
        raw = await ask(edge, batch("bytes"))
        assert code_of(raw) == (400, "metadata_too_large")
        error = json.loads(body_of(raw))["error"]
        assert "bytes_only" in error["message"]
        assert "8193 bytes of at most 8192" in error["message"]
        assert error["param"] == "encoding_format"
        await edge.at_rest()
