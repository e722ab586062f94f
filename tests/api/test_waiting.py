"""Requests that wait for a worker, as their clients see it."""

import asyncio
import json
from typing import Any

import pytest

from app.core.fleet.events import WorkerGone
from app.core.fleet.priority import Priority
from app.core.fleet.reasons import Outcome, WaitEnd
from app.core.fleet.tenant import KeySet
from app.core.overload.settings import OverloadSettings
from app.core.overload.waiting_room import QueueSettings
from tests.api.conftest import Edge, StartEdge, Talk
from tests.api.raw import BODY, body_of, headers_of, post, status_of
from tests.api.test_tenancy import grant
from tests.fakes.raw_worker import OK, Connected, RawWorker
from tests.patience import FOR_EVER_S, eventually

ONE = OverloadSettings(queue=QueueSettings(FOR_EVER_S, max_requests=3), worker_requests=1)
SHORT = OverloadSettings(queue=QueueSettings(0.3), worker_requests=1)


class Gate:
    """A worker that answers each request when it is told to. asked: the bodies, in the order in which they came."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.turns = asyncio.Semaphore(0)

    async def __call__(self, connection: Connected) -> None:
        while True:
            self.asked.append(json.loads(await connection.read_request()).get("user"))
            await self.turns.acquire()
            await connection.send(OK)


def named(name: str, **more: Any) -> bytes:
    return json.dumps({"model": "m", "user": name, **more}).encode()


async def queued(edge: Edge, count: int) -> None:
    await eventually(lambda: sum(map(len, edge.router.queues.values())) == count)


def code_of(raw: bytes) -> tuple[int, str]:
    return status_of(raw), json.loads(body_of(raw))["error"]["code"]


async def test_a_request_waits_for_its_turn(start_edge: StartEdge) -> None:
    edge, gate = await start_edge(overload=ONE), Gate()
    async with RawWorker(gate) as worker:
        edge.add(worker)
        first = await edge.talk(post(named("first")))
        await eventually(lambda: gate.asked == ["first"])
        second = await edge.talk(post(named("second")))
        await queued(edge, 1)
        assert gate.asked == ["first"]
        gate.turns.release()
        assert status_of(await first.rest()) == 200
        await eventually(lambda: gate.asked == ["first", "second"])
        gate.turns.release()
        assert status_of(await second.rest()) == 200
        await edge.at_rest()
        assert edge.told.waits == [WaitEnd.DISPATCHED]
        assert [record.queued_s > 0 for record in edge.told.records] == [False, True]


async def test_priority_decides_who_is_next(start_edge: StartEdge) -> None:
    edge, gate = await start_edge(overload=ONE), Gate()
    async with RawWorker(gate) as worker:
        edge.add(worker)
        await edge.talk(post(named("running")))
        await eventually(lambda: gate.asked == ["running"])
        for number, name in enumerate(("low", "normal", "critical"), 1):
            await edge.talk(post(named(name), b"x-warmset-priority: " + name.encode()))
            await queued(edge, number)
        for _ in range(3):
            gate.turns.release()
        await eventually(lambda: gate.asked == ["running", "critical", "normal", "low"])
        gate.turns.release()
        await edge.at_rest()


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (b"x-warmset-priority: urgent", "low, normal, high, critical"),
        (b"x-warmset-priority: \xff", "low, normal, high, critical"),
        (b"x-warmset-timeout-secs: soon", "a number of seconds"),
        (b"x-warmset-timeout-secs: -1", "a number of seconds"),
        (b"x-warmset-timeout-secs: 1e3", "a number of seconds"),
    ],
)
async def test_what_cannot_be_read_is_told(edge: Edge, header: bytes, says: str) -> None:
    talk = await edge.talk(post(BODY, header))
    raw = await talk.rest()
    assert code_of(raw) == (400, "invalid_header")
    assert says in json.loads(body_of(raw))["error"]["message"]


async def test_a_keys_priority_is_the_most_that_its_requests_have(start_edge: StartEdge) -> None:
    keys = KeySet([grant("modest", priority=Priority.NORMAL), grant("urgent", "other")])
    edge, gate = await start_edge(overload=ONE, key_set=keys), Gate()
    async with RawWorker(gate) as worker:
        edge.add(worker)
        high = b"x-warmset-priority: high"
        await edge.talk(post(named("running"), b"authorization: Bearer modest"))
        await eventually(lambda: gate.asked == ["running"])
        await edge.talk(post(named("modest"), b"authorization: Bearer modest", high))
        await queued(edge, 1)
        await edge.talk(post(named("urgent"), b"authorization: Bearer urgent", high))
        await queued(edge, 2)
        assert edge.router.queues["m"].counts() == {Priority.NORMAL: 1, Priority.HIGH: 1}
        for _ in range(3):
            gate.turns.release()
        await eventually(lambda: gate.asked == ["running", "urgent", "modest"])
        await edge.at_rest()


async def test_a_client_that_leaves_makes_room(start_edge: StartEdge) -> None:
    edge, gate = await start_edge(overload=ONE), Gate()
    async with RawWorker(gate) as worker:
        edge.add(worker)
        await edge.talk(post(named("first")))
        await eventually(lambda: gate.asked == ["first"])
        gone = await edge.talk(post(named("gone")))
        await queued(edge, 1)
        gone.leave()
        await queued(edge, 0)
        gate.turns.release()
        await edge.at_rest()
        assert gate.asked == ["first"]
        assert edge.told.waits == [WaitEnd.LEFT]
        assert [record.outcome for record in edge.told.records] == [Outcome.CLIENT_GONE, Outcome.SERVED]


async def test_who_waited_too_long_is_told_so(start_edge: StartEdge) -> None:
    edge, gate = await start_edge(overload=SHORT), Gate()
    async with RawWorker(gate) as worker:
        edge.add(worker)
        await edge.talk(post(named("first")))
        await eventually(lambda: gate.asked == ["first"])
        talk = await edge.talk(post(named("second")))
        raw = await talk.rest()
        assert code_of(raw) == (503, "queue_expired")
        assert headers_of(raw)[b"retry-after"] == b"2"
        assert "all of 1 workers have as many requests as they may" in json.loads(body_of(raw))["error"]["message"]
        assert edge.told.waits == [WaitEnd.DISMISSED]
        gate.turns.release()
        await edge.at_rest()


async def test_a_clients_own_patience_counts(start_edge: StartEdge) -> None:
    edge, gate = await start_edge(overload=ONE), Gate()
    async with RawWorker(gate) as worker:
        edge.add(worker)
        await edge.talk(post(named("first")))
        await eventually(lambda: gate.asked == ["first"])
        talk = await edge.talk(post(named("second"), b"x-warmset-timeout-secs: 0.2"))
        assert code_of(await talk.rest()) == (503, "queue_expired")
        gate.turns.release()
        await edge.at_rest()


async def test_more_than_may_wait_are_refused(start_edge: StartEdge) -> None:
    edge, gate = await start_edge(overload=ONE), Gate()
    async with RawWorker(gate) as worker:
        edge.add(worker)
        talks: list[Talk] = [await edge.talk(post(named("first")))]
        await eventually(lambda: gate.asked == ["first"])
        for number in range(1, 4):
            talks.append(await edge.talk(post(named(str(number)))))
            await queued(edge, number)
        refused = await (await edge.talk(post(named("refused")))).rest()
        assert code_of(refused) == (429, "queue_full")
        urgent = await edge.talk(post(named("urgent"), b"x-warmset-priority: critical"))
        assert code_of(await talks[3].rest()) == (429, "queue_full"), "the newest of the lowest class made room"
        for _ in range(4):
            gate.turns.release()
        assert [status_of(await talk.rest()) for talk in (*talks[:3], urgent)] == [200] * 4
        assert gate.asked == ["first", "urgent", "1", "2"]
        await edge.at_rest()


async def test_during_a_rollout_requests_wait_for_the_new_worker(start_edge: StartEdge) -> None:
    edge = await start_edge(overload=ONE)
    async with RawWorker() as old:
        edge.add(old)
        edge.gateway.handle(WorkerGone(old.url.removeprefix("http://"), "1"))
    talk = await edge.talk(post())
    await queued(edge, 1)
    async with RawWorker() as new:
        edge.add(new)
        assert status_of(await talk.rest()) == 200
        await edge.at_rest()


async def test_workers_that_are_down_are_waited_for(start_edge: StartEdge) -> None:
    """They are registered, and refuse connections until they are back."""
    edge = await start_edge(overload=ONE)
    async with RawWorker() as worker:
        edge.add(worker)
        port = worker.port
    talk = await edge.talk(post())
    await queued(edge, 1)
    async with RawWorker(port=port):
        assert status_of(await talk.rest()) == 200
        await edge.at_rest()
        assert not edge.told.records[0].refusal


async def test_a_stream_that_waits_can_be_kept_alive(start_edge: StartEdge) -> None:
    edge, gate = await start_edge(overload=ONE, sse_keepalive_s=0.05), Gate()
    async with RawWorker(gate) as worker:
        edge.add(worker)
        await edge.talk(post(named("first")))
        await eventually(lambda: gate.asked == ["first"])
        talk = await edge.talk(post(named("stream", stream=True)))
        head = await talk.until(b": keep-alive\n")
        assert b"text/event-stream" in head
        assert gate.asked == ["first"]
        talk.leave()
        await queued(edge, 0)
        gate.turns.release()
        await edge.at_rest()


async def test_the_grace_period_ends_the_wait(start_edge: StartEdge) -> None:
    edge, gate = await start_edge(overload=ONE), Gate()
    async with RawWorker(gate) as worker:
        edge.add(worker)
        await edge.talk(post(named("first")))
        await eventually(lambda: gate.asked == ["first"])
        talk = await edge.talk(post(named("second")))
        await queued(edge, 1)
        await edge.listener.stop(edge.serving, 0.1, asyncio.get_running_loop().create_future())
        assert code_of(await talk.rest()) == (503, "shutting_down")
        await edge.at_rest()
