"""The fleet against a store that tells, forgets, or is gone."""

import logging
import random
from dataclasses import dataclass, field, replace
from itertools import count

import pytest

from app.core.fleet.address import destination_of, literal_address
from app.core.fleet.allow import DestinationRules, parse_allow_list
from app.core.fleet.errors import DestinationRefused, NameUnknown, StoreUnavailable
from app.core.fleet.events import WorkerSeen
from app.core.fleet.order import Order, OrderKind
from app.core.fleet.registry import ProcessLoad, Registration, Registry, WorkerSource
from app.core.fleet.worker import Worker
from app.core.router import Router
from app.core.routing.policies import make_policy
from app.runtime.fleet import ABSENCE_S, Fleet

A, B = "http://a:1", "http://b:1"


@dataclass
class FakeStore:
    """The store's contract in memory; `is_down` makes every call fail."""

    registered: dict[str, Registration] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    loads: dict[str, ProcessLoad] = field(default_factory=dict)
    orders: dict[str, Order | None] = field(default_factory=dict)
    is_down: bool = False

    def _check(self) -> None:
        if self.is_down:
            raise StoreUnavailable("down")

    async def read_registry(self, now: float) -> Registry:
        self._check()
        return Registry(tuple(self.registered.values()), frozenset(self.removed), dict(self.orders))

    async def set_order(self, worker_id: str, order: Order | None, now: float) -> None:
        self._check()
        self.orders[worker_id] = order

    async def register(self, registration: Registration) -> None:
        self._check()
        if registration.source is WorkerSource.ADMIN:
            self.removed.discard(registration.id)
        elif registration.id in self.removed or registration.id in self.registered:
            return
        self.registered[registration.id] = registration

    async def deregister(self, worker_id: str, incarnation: str) -> bool:
        self._check()
        self.removed.add(worker_id)
        self.orders.pop(worker_id, None)
        return self.registered.pop(worker_id, None) is not None

    async def publish_load(self, load: ProcessLoad, now: float) -> None:
        self._check()
        self.loads[load.process] = load

    async def read_loads(self, now: float) -> list[ProcessLoad]:
        self._check()
        return list(self.loads.values())

    async def close(self) -> None: ...


@dataclass
class FakeMonitors:
    watched: dict[str, str] = field(default_factory=dict)
    begun: int = 0

    def watch(self, registration: Registration) -> None:
        self.watched[registration.id] = registration.incarnation
        self.begun += 1

    def rename(self, registration: Registration) -> None:
        assert registration.id in self.watched
        self.watched[registration.id] = registration.incarnation

    def forget(self, worker_id: str) -> None:
        del self.watched[worker_id]

    def address_problem(self, worker_id: str) -> str | None:
        return None


@dataclass
class FakeDestinations:
    """The real rules, on names that are known here."""

    rules: DestinationRules
    names: dict[str, list[str]]

    def refusal(self, url: str) -> str | None:
        return self.rules.refusal(url)

    async def addresses(self, url: str) -> list[str]:
        name = destination_of(url).host
        addresses = self.names.get(name, [] if literal_address(name) is None else [name])
        why = self.rules.refusal(url, addresses)
        if why is not None:
            raise DestinationRefused(why)
        if not addresses:
            raise NameUnknown(name)
        return addresses


class Replica:
    """One process's fleet, on a clock that the test turns."""

    def __init__(
        self, store: FakeStore, name: str = "p1", *, allow: tuple[str, ...] = (), configured: tuple[str, ...] = ()
    ) -> None:
        self.now = 0.0
        self.monitors = FakeMonitors()
        self.told: list[tuple[str, bool]] = []
        numbers = count(1)
        self.router = Router(make_policy("random"), random.Random(0))
        self.names = {"a": ["10.0.0.1"], "b": ["10.0.0.2"]}
        rules = DestinationRules(parse_allow_list(allow), frozenset(configured))
        self.fleet = Fleet(
            self.router,
            store,
            self.monitors,
            destinations=FakeDestinations(rules, self.names),
            process=name,
            in_flight=lambda worker: 0,
            tell=lambda event: self.told.append((event.worker_id, event.order)),
            clock=lambda: self.now,
            new_incarnation=lambda: f"{name}-{next(numbers)}",
        )

    async def sync(self, after_s: float = 4.0) -> None:
        self.now += after_s
        await self.fleet.sync()

    @property
    def workers(self) -> list[str]:
        return sorted(self.monitors.watched)


async def test_configured_workers_need_no_store() -> None:
    replica = Replica(FakeStore(is_down=True))
    replica.fleet.configure([A, B])
    assert replica.workers == ["a:1", "b:1"]
    await replica.sync()
    assert replica.workers == ["a:1", "b:1"]


async def test_replicas_learn_of_each_others_workers() -> None:
    store = FakeStore()
    one, two = Replica(store, "p1"), Replica(store, "p2")
    one.fleet.configure([A])
    two.fleet.configure([B])
    for _ in range(2):
        await one.sync()
        await two.sync()
    assert one.workers == two.workers == ["a:1", "b:1"]
    assert [load.process for load in one.fleet.other_loads] == ["p2"]


async def test_the_same_worker_in_two_configurations_is_one_registration() -> None:
    store = FakeStore()
    one, two = Replica(store, "p1"), Replica(store, "p2")
    one.fleet.configure([A])
    two.fleet.configure([A])
    for _ in range(3):
        await one.sync()
        await two.sync()
    assert store.registered["a:1"].incarnation == "p1-1"
    assert one.monitors.watched == two.monitors.watched == {"a:1": "p1-1"}, "what one says of it the other understands"
    assert two.monitors.begun == 1, "it was not disturbed for that"
    assert await two.fleet.remove("a:1", "p1-1") == "removed"


async def test_a_worker_added_here_is_there_for_all_and_a_removal_too() -> None:
    store = FakeStore()
    one, two = Replica(store, "p1"), Replica(store, "p2")
    added, created = await one.fleet.add(A + "/")
    assert (created, added.source) == (True, WorkerSource.ADMIN)
    assert await one.fleet.add(A) == (added, False)
    with pytest.raises(ValueError, match="registered there as http://"):
        await one.fleet.add(A.replace("http://", "https://"))
    await two.sync()
    assert two.workers == ["a:1"]
    assert await two.fleet.remove("a:1", "not-this") == "other_incarnation"
    assert await two.fleet.remove("a:1", added.incarnation) == "removed"
    assert await two.fleet.remove("a:1", None) == "unknown"
    await one.sync()
    assert one.workers == []


async def test_a_removed_configured_worker_stays_removed_on_every_replica() -> None:
    store = FakeStore()
    one, two = Replica(store, "p1"), Replica(store, "p2")
    for replica in (one, two):
        replica.fleet.configure([A])
        await replica.sync()
    await one.fleet.remove("a:1", None)
    for _ in range(3):
        await two.sync()
        await one.sync()
    assert one.workers == two.workers == []
    await one.fleet.add(A)
    await two.sync()
    assert two.workers == ["a:1"]


async def test_a_store_that_lost_everything_gets_it_back() -> None:
    store = FakeStore()
    one, two = Replica(store, "p1"), Replica(store, "p2")
    one.fleet.configure([A])
    await one.fleet.add(B)
    await one.sync()
    await two.sync()
    store.registered.clear()
    store.loads.clear()
    await two.sync()
    assert two.workers == ["a:1", "b:1"], "absence alone removes nothing"
    await one.sync()
    await two.sync()
    assert sorted(store.registered) == ["a:1", "b:1"]


async def test_a_leased_worker_that_nobody_renews_goes_after_a_while() -> None:
    store = FakeStore()
    one, two = Replica(store, "p1"), Replica(store, "p2")
    one.fleet.configure([A])
    await one.sync()
    await two.sync()
    del store.registered["a:1"]
    await two.sync(1.0)
    await two.sync(ABSENCE_S - 2)
    assert two.workers == ["a:1"]
    await two.sync(3.0)
    assert two.workers == []


async def test_nothing_is_lost_while_the_store_is_gone_and_admin_writes_are_refused() -> None:
    store = FakeStore()
    replica = Replica(store)
    await replica.fleet.add(A)
    store.is_down = True
    for _ in range(20):
        await replica.sync()
    assert replica.workers == ["a:1"]
    with pytest.raises(StoreUnavailable):
        await replica.fleet.add(B)
    with pytest.raises(StoreUnavailable):
        await replica.fleet.remove("a:1", None)
    assert replica.workers == ["a:1"]


async def test_an_order_is_told_to_all_survives_a_lost_store_and_ends_on_every_replica() -> None:
    store = FakeStore()
    one, two = Replica(store, "p1"), Replica(store, "p2")
    await one.fleet.add(A)
    await two.sync()
    order = Order(OrderKind.DRAIN, "a new driver", "ops", one.now + 60.0)
    assert not await one.fleet.order("nobody", order)
    assert await one.fleet.order("a:1", order)
    await two.sync()
    assert one.told == two.told == [("a:1", order)]
    # The end of an order is read a little differently each time.
    store.orders["a:1"] = replace(order, until=order.until + 0.5)
    await two.sync()
    assert len(two.told) == 1
    store.orders.clear()
    await two.sync()
    assert store.orders == {"a:1": order}
    assert await two.fleet.order("a:1", None)
    await one.sync()
    assert one.told == two.told == [("a:1", order), ("a:1", None)]


async def test_an_order_ends_by_itself_and_is_not_written_again() -> None:
    store = FakeStore()
    replica = Replica(store, "p1")
    await replica.fleet.add(A)
    order = Order(OrderKind.CORDON, "to be looked at", "ops", replica.now + 10.0)
    assert await replica.fleet.order("a:1", order)
    store.orders.clear()
    replica.now += 10.0
    await replica.sync()
    assert store.orders == {}
    assert replica.told == [("a:1", order), ("a:1", None)]


async def test_what_cannot_be_a_worker_is_refused() -> None:
    replica = Replica(FakeStore())
    for url in ("", "ftp://a", "http://", "http://u:p@a", "http://a?x=1", "http://a:0", "http://a:99999", "a:1"):
        with pytest.raises(ValueError, match=r".+"):
            await replica.fleet.add(url)


# Where workers may be


async def test_what_may_not_be_a_worker_is_refused_before_the_store_learns_of_it() -> None:
    store = FakeStore()
    replica = Replica(store, allow=("*.llm.svc", "10.0.0.0/8:1"))
    replica.names |= {"c": ["11.0.0.1"], "d.llm.svc": ["169.254.169.254"], "e.llm.svc": ["11.0.0.1"]}
    for url in ("http://c:1", "http://a:2", "http://d.llm.svc", "http://169.254.169.254", "http://a:1/path"):
        with pytest.raises(DestinationRefused):
            await replica.fleet.add(url)
    with pytest.raises(NameUnknown):
        await replica.fleet.add("http://nobody.llm.svc")
    assert not store.registered
    assert not replica.workers
    await replica.fleet.add("http://a:1")
    await replica.fleet.add("http://e.llm.svc")
    assert replica.workers == ["a:1", "e.llm.svc:80"]


FORGED = [
    Registration("169.254.169.254:80", "http://169.254.169.254:80", "x", WorkerSource.ADMIN),
    Registration("evil.example:80", "http://evil.example:80", "x", WorkerSource.CONFIG),
    Registration("a:1~latest", "http://a:1/latest", "x", WorkerSource.ADMIN),
    Registration("a:1", "https://a:1", "x", WorkerSource.ADMIN),
]


async def test_a_registration_of_the_store_that_leads_astray_is_not_taken_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = FakeStore({one.id: one for one in FORGED})
    replica = Replica(store, allow=("a", "b"), configured=(A,))
    replica.fleet.configure([A])
    with caplog.at_level(logging.WARNING, "warmset.fleet"):
        for _ in range(3):
            await replica.sync()
    assert replica.monitors.watched == {"a:1": "p1-1"}, "nor does it take the place of ours"
    assert [worker["url"] for worker in replica.fleet.describe()] == [A]
    refused = {one["id"]: one["because"] for one in replica.fleet.describe_refused()}
    assert sorted(refused) == sorted(one.id for one in FORGED)
    assert "configuration" in refused["a:1"]
    assert "allowed are a, b" in refused["evil.example:80"]
    assert len(caplog.records) == len(FORGED), "each is told once"


async def test_a_refused_registration_can_be_deleted_from_the_store() -> None:
    store = FakeStore({FORGED[0].id: FORGED[0]})
    replica = Replica(store)
    await replica.sync()
    assert not replica.workers
    assert await replica.fleet.remove(FORGED[0].id, "y") == "other_incarnation"
    assert await replica.fleet.remove(FORGED[0].id, None) == "removed"
    assert not store.registered
    assert not replica.fleet.describe_refused()
    await replica.sync()
    assert not replica.fleet.describe_refused()


async def test_a_worker_of_ours_that_somebody_rewrites_in_the_store_is_written_back() -> None:
    store = FakeStore()
    replica = Replica(store, allow=("http://a",))
    added, _ = await replica.fleet.add(A)
    store.registered["a:1"] = Registration("a:1", "https://a:1", "x", WorkerSource.ADMIN)
    await replica.sync()
    assert replica.monitors.watched == {"a:1": added.incarnation}
    assert store.registered["a:1"] == added
    await replica.sync()
    assert not replica.fleet.describe_refused()


async def test_who_is_trusted_is_the_own_configuration_not_a_source_that_the_store_names() -> None:
    link_local = "http://169.254.1.5:80"
    store = FakeStore()
    one = Replica(store, "p1", configured=(link_local,))
    two = Replica(store, "p2")
    one.fleet.configure([link_local])
    await one.sync()
    await two.sync()
    assert one.workers == ["169.254.1.5:80"]
    assert two.workers == []


async def test_a_late_deletion_does_not_remove_the_worker_that_came_after() -> None:
    store = FakeStore()
    replica = Replica(store)
    added, _ = await replica.fleet.add(A)
    old, new = f"{added.incarnation}.1.00@10.0.0.1", f"{added.incarnation}.1.00@10.0.0.9"
    for incarnation, address in ((old, "10.0.0.1"), (new, "10.0.0.9")):
        replica.router.handle(WorkerSeen(Worker("a:1", A, incarnation, address=address)), 0.0)
    (described,) = replica.fleet.describe()
    assert (described["incarnation"], described["address"]) == (new, "10.0.0.9")
    assert await replica.fleet.remove("a:1", old) == "other_incarnation"
    assert replica.workers == ["a:1"]
    # Removed and added again, it is another one even at the same address.
    assert await replica.fleet.remove("a:1", new) == "removed"
    again, _ = await replica.fleet.add(A)
    replica.router.handle(WorkerSeen(Worker("a:1", A, again.incarnation)), 0.0)
    for late in (old, new, added.incarnation):
        assert await replica.fleet.remove("a:1", late) == "other_incarnation"
    assert store.registered["a:1"] == again
