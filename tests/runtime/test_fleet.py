"""The fleet against a store that tells, forgets, or is gone."""

import random
from dataclasses import dataclass, field
from itertools import count

import pytest

from app.core.fleet.errors import StoreUnavailable
from app.core.fleet.registry import ProcessLoad, Registration, Registry, WorkerSource
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
    draining: dict[str, bool] = field(default_factory=dict)
    is_down: bool = False

    def _check(self) -> None:
        if self.is_down:
            raise StoreUnavailable("down")

    async def read_registry(self) -> Registry:
        self._check()
        return Registry(tuple(self.registered.values()), frozenset(self.removed), dict(self.draining))

    async def set_draining(self, worker_id: str, is_draining: bool) -> None:
        self._check()
        self.draining[worker_id] = is_draining

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
        self.draining.pop(worker_id, None)
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

    def watch(self, registration: Registration) -> None:
        self.watched[registration.id] = registration.incarnation

    def forget(self, worker_id: str) -> None:
        del self.watched[worker_id]


class Replica:
    """One process's fleet, on a clock that the test turns."""

    def __init__(self, store: FakeStore, name: str = "p1") -> None:
        self.now = 0.0
        self.monitors = FakeMonitors()
        self.told: list[tuple[str, bool]] = []
        numbers = count(1)
        self.fleet = Fleet(
            Router(make_policy("random"), random.Random(0)),
            store,
            self.monitors,
            process=name,
            in_flight=lambda worker: 0,
            tell=lambda event: self.told.append((event.worker_id, event.is_draining)),
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
    assert two.monitors.watched == {"a:1": "p2-1"}, "it was not disturbed for that"
    assert await two.fleet.remove("a:1", "p1-1") == "removed"


async def test_a_worker_added_here_is_there_for_all_and_a_removal_too() -> None:
    store = FakeStore()
    one, two = Replica(store, "p1"), Replica(store, "p2")
    added, created = await one.fleet.add(A + "/")
    assert (created, added.source) == (True, WorkerSource.ADMIN)
    assert await one.fleet.add(A) == (added, False)
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


async def test_draining_is_told_to_all_survives_a_lost_store_and_ends_on_every_replica() -> None:
    store = FakeStore()
    one, two = Replica(store, "p1"), Replica(store, "p2")
    await one.fleet.add(A)
    await two.sync()
    assert not await one.fleet.set_draining("nobody", True)
    assert await one.fleet.set_draining("a:1", True)
    await two.sync()
    assert one.told == two.told == [("a:1", True)]
    store.draining.clear()
    await two.sync()
    assert store.draining == {"a:1": True}
    assert await two.fleet.set_draining("a:1", False)
    await one.sync()
    assert one.told == two.told == [("a:1", True), ("a:1", False)]


async def test_what_cannot_be_a_worker_is_refused() -> None:
    replica = Replica(FakeStore())
    for url in ("", "ftp://a", "http://", "http://u:p@a", "http://a?x=1", "http://a:0", "http://a:99999", "a:1"):
        with pytest.raises(ValueError, match=r".+"):
            await replica.fleet.add(url)
