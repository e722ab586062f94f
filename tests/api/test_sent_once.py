"""How often a worker is asked, and when a client is told that asking again is of no use."""

import asyncio
import json

import openai
import pytest

from tests.api.conftest import StartEdge
from tests.api.raw import STREAM_HEAD, answer, body_of, chunk, headers_of, post, status_of
from tests.fakes.raw_worker import Connected, RawWorker
from tests.patience import PATIENCE_S


async def stalls(connection: Connected) -> None:
    await connection.read_request()
    await connection.until_closed()


async def test_a_worker_that_takes_a_request_and_stalls_is_the_only_one_asked(start_edge: StartEdge) -> None:
    edge = await start_edge(first_byte_s=0.2)
    async with RawWorker(stalls) as one, RawWorker(stalls) as other:
        edge.add(one)
        edge.add(other)
        raw = await (await edge.talk(post())).rest()
        assert (status_of(raw), json.loads(body_of(raw))["error"]["code"]) == (504, "request_timeout")
        assert len(one.requests + other.requests) == 1
        # An SDK left to itself sends again what ended with a 5xx: for this one that is told to be of no use.
        assert headers_of(raw)[b"x-should-retry"] == b"false"
        async with openai.AsyncOpenAI(base_url=edge.url + "/v1", api_key="k", max_retries=5) as client:
            with pytest.raises(openai.InternalServerError):
                await client.completions.create(model="m", prompt="x")
        assert len(one.requests + other.requests) == 2
        await edge.at_rest()


async def test_what_a_worker_answers_is_not_asked_of_another(start_edge: StartEdge) -> None:
    status = 0

    async def refuses(connection: Connected) -> None:
        while True:
            await connection.read_request()
            await connection.send(answer(b"no", b"retry-after: 7", status=status))

    edge = await start_edge()
    async with RawWorker(refuses) as one, RawWorker(refuses) as other:
        edge.add(one)
        edge.add(other)
        for place, status in enumerate((400, 404, 500, 502, 504), 1):
            raw = await (await edge.talk(post())).rest()
            assert (status_of(raw), body_of(raw), headers_of(raw)[b"retry-after"]) == (status, b"no", b"7")
            assert b"x-should-retry" not in headers_of(raw), "the worker's own words"
            assert len(one.requests + other.requests) == place


@pytest.mark.parametrize("status", [429, 503, 529])
async def test_a_worker_that_takes_no_more_has_another_asked_once(start_edge: StartEdge, status: int) -> None:
    """Nothing ran there, so nothing is done twice."""
    refusal = answer(b"no", b"retry-after: 7", status=status)

    async def refuses(connection: Connected) -> None:
        while True:
            await connection.read_request()
            await connection.send(refusal)

    edge = await start_edge()
    async with RawWorker(refuses) as one, RawWorker(refuses) as other, RawWorker() as third, RawWorker() as fourth:
        workers = (one, other, third, fourth)
        for each in workers:
            edge.add(each)
        for _ in range(12):
            assert status_of(await (await edge.talk(post())).rest()) == 200
        assert len(one.requests) == len(other.requests) == 1, "marked until it said that it may be asked again"
        await edge.at_rest()


async def test_when_most_of_a_pool_takes_no_more_its_word_is_passed_on(start_edge: StartEdge) -> None:
    async def refuses(connection: Connected) -> None:
        while True:
            await connection.read_request()
            await connection.send(answer(b"no", b"retry-after: 7", status=429))

    edge = await start_edge()
    async with RawWorker(refuses) as one, RawWorker(refuses) as other:
        edge.add(one)
        edge.add(other)
        raw = await (await edge.talk(post())).rest()
        assert (status_of(raw), body_of(raw), headers_of(raw)[b"retry-after"]) == (429, b"no", b"7")
        assert len(one.requests + other.requests) == 2
        # Until they may be asked again it is the gateway that says so, but for one request to each now and then.
        answers = [await (await edge.talk(post())).rest() for _ in range(8)]
        assert len(one.requests + other.requests) <= 4
        told = [json.loads(body_of(raw))["error"] for raw in answers if body_of(raw) != b"no"]
        assert {error["code"] for error in told} == {"workers_overloaded"}
        last = answers[-1]
        assert (status_of(last), 5 <= int(headers_of(last)[b"retry-after"]) <= 9) == (429, True)
        await edge.at_rest()


async def test_a_stream_that_its_worker_leaves_open_after_an_error_ends(start_edge: StartEdge) -> None:
    edge = await start_edge(idle_s=0.2)
    error = b'data: {"error":{"message":"n must be at least 1"}}\n\n'

    closed = asyncio.Event()

    async def forgets_to_end(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(STREAM_HEAD + chunk(error))
        try:
            await connection.until_closed()
        finally:
            closed.set()

    async with RawWorker(forgets_to_end) as worker:
        edge.add(worker)
        body = body_of(await (await edge.talk(post(b'{"model": "m", "n": 0, "stream": true}'))).rest())
        assert body.startswith(error)
        last = json.loads(body[len(error) :].removeprefix(b"data: "))
        assert last["error"]["code"] == "worker_stream_broken"
        await asyncio.wait_for(closed.wait(), PATIENCE_S)
        await edge.at_rest()
