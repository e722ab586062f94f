"""A turn in the queue, and a client that leaves, in every order in which they can meet."""

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from app.core.fleet.commands import Dispatch, Refuse
from app.core.fleet.events import HealthReported, WorkerSeen
from app.core.fleet.exchange import Call, Header
from app.core.fleet.reasons import Failure, MarkKind, Outcome, WaitEnd
from app.core.fleet.request import RequestFacts
from app.core.fleet.worker import Worker
from app.core.overload.settings import OverloadSettings
from app.core.overload.waiting_room import QueueSettings
from app.core.router import Router
from app.core.routing.policies import make_policy
from app.runtime.gateway import Exchange, Gateway
from tests.core.script import worker


class Said:
    """The answer of a worker that has said everything."""

    status = 200
    is_complete = True
    is_ended_by_close = False

    def __init__(self) -> None:
        self.headers: list[Header] = []

    async def read(self) -> bytes:
        return b""

    def close(self) -> None: ...


@dataclass
class Answers:
    """Upstream and telemetry in one: every call is answered at once."""

    outcomes: list[Outcome] = field(default_factory=list)
    ends: list[WaitEnd] = field(default_factory=list)

    async def send(self, worker: Worker, call: Call) -> Said:
        return Said()

    def decided(self, facts: RequestFacts, verdict: Dispatch | Refuse) -> None: ...

    def upstream_failed(self, worker_id: str, failure: Failure) -> None: ...

    def marked(self, worker_id: str, kind: MarkKind) -> None: ...

    def request_finished(self, worker_id: str, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def waited(self, facts: RequestFacts, seconds: float, end: WaitEnd) -> None:
        self.ends.append(end)


@dataclass
class Scene:
    gateway: Gateway
    told: Answers
    first: Exchange
    second: "asyncio.Task[Exchange | Refuse]"


FACTS = RequestFacts("r", "m", "/v1/chat/completions")


@pytest.fixture
async def scene() -> Scene:
    """One worker that may have one request, and has it; a second waits."""
    told = Answers()
    settings = OverloadSettings(queue=QueueSettings(timeout_s=60.0), worker_requests=1)
    router = Router(make_policy("round_robin"), random.Random(0), settings)
    gateway = Gateway(router, told, told, asyncio.get_running_loop().time)
    gateway.handle(WorkerSeen(worker("a", "m")))
    gateway.handle(HealthReported("a", "1", healthy=True))
    first = await gateway.open(FACTS, Call(b"POST", b"/", [], b""))
    assert isinstance(first, Exchange)
    second = asyncio.ensure_future(gateway.open(FACTS, Call(b"POST", b"/", [], b"")))
    await asyncio.sleep(0)
    assert router.queues
    return Scene(gateway, told, first, second)


async def gone(scene: Scene) -> None:
    with pytest.raises(asyncio.CancelledError):
        await scene.second
    assert scene.gateway.router.open_requests == 0
    assert not scene.gateway.router.queues
    assert not scene.gateway._waiting


async def test_the_turn_comes(scene: Scene) -> None:
    scene.first.finish(Outcome.SERVED)
    exchange = await scene.second
    assert isinstance(exchange, Exchange)
    assert exchange.waited_s > 0
    exchange.finish(Outcome.SERVED)
    assert scene.gateway.router.open_requests == 0
    assert scene.told.ends == [WaitEnd.DISPATCHED]


async def test_the_client_leaves_before_its_turn(scene: Scene) -> None:
    scene.second.cancel()
    await asyncio.sleep(0)
    scene.first.finish(Outcome.SERVED)
    await gone(scene)
    assert scene.told.outcomes == [Outcome.SERVED]


async def test_the_turn_comes_and_the_client_leaves_before_it_is_told(scene: Scene) -> None:
    scene.first.finish(Outcome.SERVED)
    scene.second.cancel()
    await gone(scene)
    assert scene.told.outcomes == [Outcome.SERVED, Outcome.CLIENT_GONE]


async def test_the_client_leaves_and_its_turn_comes_before_that_is_known(scene: Scene) -> None:
    scene.second.cancel()
    scene.first.finish(Outcome.SERVED)
    await gone(scene)
    assert sorted(scene.told.outcomes) == sorted([Outcome.SERVED, Outcome.CLIENT_GONE])


async def test_nobody_waits_nothing_is_done(scene: Scene) -> None:
    scene.first.finish(Outcome.SERVED)
    exchange = await scene.second
    assert isinstance(exchange, Exchange)
    exchange.finish(Outcome.SERVED)
    await scene.gateway.tick()
