"""Many at once: streams that all go on together, and clients that leave in the middle of everything."""

import asyncio
import random

from app.core.fleet.reasons import Outcome
from tests.api.conftest import Edge
from tests.api.raw import BODY, LAST_CHUNK, STREAM_HEAD, chunk, post, status_of
from tests.fakes.raw_worker import Connected, RawWorker

STREAMS = 150
LEAVERS = 260


async def test_a_hundred_and_fifty_streams_run_at_once(edge: Edge) -> None:
    go_on = asyncio.Event()

    async def script(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(STREAM_HEAD + chunk(b"data: 1\n\n"))
        await go_on.wait()
        await connection.send(chunk(b"data: 2\n\n") + LAST_CHUNK)

    async with RawWorker(script) as worker:
        edge.add(worker)
        talks = [await edge.talk(post()) for _ in range(STREAMS)]
        await asyncio.gather(*(talk.until(b"data: 1\n\n") for talk in talks))
        assert edge.router.open_requests == STREAMS
        go_on.set()
        for rest in await asyncio.gather(*(talk.rest() for talk in talks)):
            assert rest.endswith(b"data: 2\n\n\r\n" + LAST_CHUNK)
        await edge.at_rest()


async def test_clients_that_leave_at_random_leave_nothing_behind(edge: Edge) -> None:
    chance = random.Random(36)
    is_over = False

    async def never_ends(connection: Connected) -> None:
        while True:
            body = await connection.read_request()
            if is_over:
                await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
                continue
            await asyncio.sleep(chance.random() * 0.003)
            if b"stream" not in body:
                await connection.until_closed()  # prefill
            await connection.send(STREAM_HEAD)
            while True:
                await connection.send(chunk(b"data: 1\n\n"))
                await asyncio.sleep(0.001)

    async def leaver(place: int) -> None:
        is_stream = place % 2 == 0
        request = post(b'{"model": "m", "stream": true}' if is_stream else BODY)
        sends_half = place % 5 == 0
        talk = await edge.talk(request[: chance.randrange(len(request))] if sends_half else request)
        if place % 10 == 2:
            await talk.until(b"data: 1\n\n")
        else:
            await asyncio.sleep(chance.random() * 0.008)
        talk.leave()

    async with RawWorker(never_ends) as worker:
        edge.add(worker)
        for start in range(0, LEAVERS, 20):
            await asyncio.gather(*map(leaver, range(start, start + 20)))
        await edge.at_rest()
        assert edge.proxy.held.size == 0
        assert not [origin for origin in edge.upstream._origins.values() if origin.pending]
        outcomes = {record.outcome for record in edge.told.records}
        assert outcomes == {Outcome.CLIENT_GONE}
        assert len(edge.told.records) >= LEAVERS // 10, "those that read of their stream, at least"
        is_over = True
        talks = [await edge.talk(post()) for _ in range(20)]
        assert [status_of(await talk.rest()) for talk in talks] == [200] * 20, "and it serves as before"
