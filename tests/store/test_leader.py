"""One leader at a time on a real server, and an epoch that never falls, whatever the server loses."""

import asyncio
import random
import time

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from redis.asyncio import Redis

from app.core.lease import LEASE_S, Election, Inbox, Lease, Place
from app.runtime.tasks import Tasks
from app.store.redis import RedisStore
from tests.store.conftest import PATIENT, pass_time

LEASE = "warmset:{leader}:lease"
PLAN = "warmset:{leader}:plan"


async def test_the_first_who_asks_leads_until_its_lease_is_over(store: RedisStore, raw: Redis) -> None:
    first = await store.campaign("a", 0)
    assert first.leader == "a"
    assert await store.campaign("b", 0) == first
    assert await store.campaign("a", first.epoch) == first
    await pass_time(raw, LEASE_S - 1)
    assert await store.campaign("b", 0) == first
    assert await store.campaign("a", first.epoch) == first, "renewed"
    await pass_time(raw, LEASE_S + 1)
    second = await store.campaign("b", 0)
    assert second.leader == "b"
    assert second.epoch > first.epoch
    assert await store.campaign("a", first.epoch) == second


async def test_who_renews_too_late_leads_anew(store: RedisStore, raw: Redis) -> None:
    first = await store.campaign("a", 0)
    await pass_time(raw, LEASE_S + 1)
    second = await store.campaign("a", first.epoch)
    assert second.leader == "a"
    assert second.epoch > first.epoch


async def test_who_resigns_makes_room_at_once(store: RedisStore) -> None:
    first = await store.campaign("a", 0)
    await store.resign("b", first.epoch)
    await store.resign("a", first.epoch - 1)
    assert await store.campaign("b", 0) == first
    await store.resign("a", first.epoch)
    second = await store.campaign("b", 0)
    assert second.leader == "b"
    assert second.epoch > first.epoch


async def test_a_lost_epoch_is_told_by_whoever_knows_it(store: RedisStore, raw: Redis) -> None:
    known = (await store.campaign("a", 0)).epoch + 1_000_000_000_000  # a server whose clock was ahead
    await raw.flushall()
    ignorant = await store.campaign("new", 0)
    assert ignorant.epoch < known
    healed = await store.campaign("follower", known)
    assert healed == Election("follower", known + 1)
    assert await store.campaign("new", ignorant.epoch) == healed
    assert not await store.publish_plan("new", Place(ignorant.epoch, 1), b"{}")


async def test_only_the_leader_publishes_and_only_forwards(store: RedisStore, raw: Redis) -> None:
    assert await store.read_plan() is None
    assert not await store.publish_plan("a", Place(1, 1), b"none leads")
    epoch = (await store.campaign("a", 0)).epoch
    assert await store.publish_plan("a", Place(epoch, 2), b"two")
    for place, why in [(Place(epoch, 2), b"again"), (Place(epoch, 1), b"back"), (Place(epoch + 1, 1), b"claimed")]:
        assert not await store.publish_plan("a", place, why)
    assert not await store.publish_plan("b", Place(epoch, 3), b"another")
    assert await store.read_plan() == (Place(epoch, 2), b"two")
    await pass_time(raw, LEASE_S + 1)
    assert not await store.publish_plan("a", Place(epoch, 3), b"after its lease")
    later = (await store.campaign("b", 0)).epoch
    assert await store.publish_plan("b", Place(later, 1), b"one")
    assert await store.read_plan() == (Place(later, 1), b"one")


@pytest.mark.parametrize(
    "held",
    [
        {"name": "x", "epoch": "nonsense", "until": "9999999999999999"},
        {"name": "x", "epoch": "-3", "until": "0"},
        {"name": "x", "epoch": "9007199254740991", "until": "99999999999999"},
        {"name": "x", "epoch": "1e300", "until": "1"},
        {"name": "x", "epoch": "7", "until": "99999999999999"},  # nobody could have leased it for that long
        {"epoch": "7"},
        {"name": "x"},
        "a text",
    ],
)
async def test_what_cannot_be_a_lease_holds_nobody_up(store: RedisStore, raw: Redis, held: object) -> None:
    if isinstance(held, dict):
        await raw.hset(LEASE, mapping=held)
    else:
        await raw.set(LEASE, str(held))
    first = await store.campaign("a", 0)
    assert first.leader == "a"
    assert await store.campaign("b", 0) == first
    assert await store.publish_plan("a", Place(first.epoch, 1), b"{}")


async def test_what_cannot_be_a_plan_is_skipped(store: RedisStore, raw: Redis) -> None:
    await raw.set(PLAN, "a text")
    assert await store.read_plan() is None
    await raw.delete(PLAN)
    await raw.hset(PLAN, mapping={"epoch": "x", "seq": "1", "plan": "{}"})
    assert await store.read_plan() is None
    assert store.malformed == 1
    epoch = (await store.campaign("a", 0)).epoch
    assert await store.publish_plan("a", Place(epoch, 1), b"{}"), "and replaced"
    assert await store.read_plan() == (Place(epoch, 1), b"{}")


class Gateway:
    """One that campaigns, publishes while it believes that it leads, and applies what it reads."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lease = Lease(name)
        self.inbox = Inbox()
        self.seq = 0
        self.applied: list[Place] = []


class Leadership(RuleBasedStateMachine):
    """I8: under loss of data, of time, of a fail-over's last writes: what each applies strictly rises, no two
    publish at one place, and who reads after a whole turn applies the present leader's."""

    store: RedisStore
    raw: Redis
    loop: asyncio.AbstractEventLoop

    @initialize()
    def begin(self) -> None:
        self.run(self.raw.flushall())
        self.gateways = [Gateway(name) for name in "abc"]
        self.now = 0.0
        self.published: dict[Place, str] = {}
        self.backup: dict[bytes, dict[bytes, bytes]] = {}
        self.newborn = 0

    def run(self, work: object) -> object:
        return self.loop.run_until_complete(work)  # type: ignore[arg-type]

    @rule(number=st.integers(0, 2))
    def campaign(self, number: int) -> None:
        self._campaign(self.gateways[number])

    def _campaign(self, gateway: Gateway) -> None:
        election = self.run(self.store.campaign(gateway.name, gateway.lease.known_epoch))
        assert isinstance(election, Election)
        before = gateway.lease.epoch
        gateway.lease.answered(election, self.now)
        if gateway.lease.epoch != before:
            assert gateway.lease.epoch > before
            gateway.seq = 0

    @rule(number=st.integers(0, 2), is_paused=st.booleans())
    def publish(self, number: int, is_paused: bool) -> None:
        """is_paused: it decided to while it led, and the bytes leave later."""
        gateway = self.gateways[number]
        if gateway.lease.epoch and (is_paused or gateway.lease.leads(self.now)):
            gateway.seq += 1
            place = Place(gateway.lease.epoch, gateway.seq)
            if self.run(self.store.publish_plan(gateway.name, place, gateway.name.encode())):
                assert self.published.setdefault(place, gateway.name) == gateway.name, "two at one place"

    @rule(number=st.integers(0, 2))
    def read(self, number: int) -> None:
        self._read(self.gateways[number])

    def _read(self, gateway: Gateway) -> None:
        found = self.run(self.store.read_plan())
        if found is not None:
            place, plan = found  # type: ignore[misc]
            gateway.lease.heard_of(place.epoch)
            if gateway.inbox.takes(place):
                assert self.published[place] == plan.decode()
                gateway.applied.append(place)

    @rule(number=st.integers(0, 2))
    def restart(self, number: int) -> None:
        self.newborn += 1
        self.gateways[number] = Gateway(f"new{self.newborn}")

    @rule(seconds=st.sampled_from([1.0, 4.0, 6.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.run(pass_time(self.raw, seconds))

    @rule()
    def flush(self) -> None:
        self.run(self.raw.flushall())

    @rule()
    def back_up(self) -> None:
        self.backup = {key: self.run(self.raw.hgetall(key)) for key in (LEASE.encode(), PLAN.encode())}  # type: ignore[misc]

    @rule()
    def fail_over(self) -> None:
        """To a replica that had not got the last writes."""
        self.run(self.raw.flushall())
        for key, held in self.backup.items():
            if held:
                self.run(self.raw.hset(key, mapping=held))  # type: ignore[arg-type]

    @rule()
    def one_whole_turn(self) -> None:
        for _ in range(2):  # what was lost is told in the first
            for gateway in self.gateways:
                self._campaign(gateway)
        leaders = [gateway for gateway in self.gateways if gateway.lease.leads(self.now)]
        assert len(leaders) <= 1
        if leaders:
            self.publish(self.gateways.index(leaders[0]), False)
            for gateway in self.gateways:
                self._read(gateway)
                assert gateway.applied[-1] == Place(leaders[0].lease.epoch, leaders[0].seq)

    def teardown(self) -> None:
        for gateway in getattr(self, "gateways", []):
            assert gateway.applied == sorted(set(gateway.applied)), "strictly rising"


def test_what_followers_apply_only_rises(shared_url: str) -> None:
    loop = asyncio.new_event_loop()
    tasks = Tasks()
    raw = Redis.from_url(shared_url)
    store = RedisStore(shared_url, start=tasks.start, clock=time.monotonic, rng=random.Random(1), limits=PATIENT)
    machine = type("Leadership", (Leadership,), {"store": store, "raw": raw, "loop": loop})
    case = machine.TestCase
    case.settings = settings(
        max_examples=30, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
    )
    try:
        case("runTest").runTest()
    finally:
        loop.run_until_complete(store.close())
        loop.run_until_complete(raw.aclose())
        loop.run_until_complete(tasks.stop())
        loop.close()
