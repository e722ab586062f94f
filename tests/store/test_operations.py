"""What each operation promises, on a real server."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from redis.asyncio import Redis

from app.core.fleet.load import LoadSample
from app.core.fleet.order import Order, OrderKind
from app.core.fleet.registry import ProcessLoad, Registration, Registry, WorkerSource
from app.store.redis import RedisStore
from tests.patience import PATIENCE_S
from tests.store.conftest import pass_time

Make = Callable[..., RedisStore]

WORKERS = "warmset:{registry}:workers"
REMOVED = "warmset:{registry}:removed"
ORDERS = "warmset:{registry}:orders"
LOADS = "warmset:{load}:processes"


def config(number: int = 1, incarnation: str = "a", url: str = "") -> Registration:
    return Registration(f"h:{number}", url or f"http://h:{number}", incarnation, WorkerSource.CONFIG)


def admin(number: int = 1, incarnation: str = "a") -> Registration:
    return Registration(f"h:{number}", f"http://h:{number}", incarnation, WorkerSource.ADMIN)


async def test_an_empty_store_has_no_workers(store: RedisStore) -> None:
    assert await store.read_registry(0.0) == Registry()
    assert await store.read_loads(1.0) == []


async def test_registrations_are_read_back_by_every_client(store: RedisStore, make_store: Make) -> None:
    await store.register(config(2))
    await store.register(admin(1))
    assert await make_store().read_registry(0.0) == Registry((admin(1), config(2)))


async def test_prefixes_do_not_see_each_other(store: RedisStore, make_store: Make) -> None:
    await store.register(admin())
    assert await make_store(prefix="other:").read_registry(0.0) == Registry()


async def test_a_configured_worker_is_gone_after_its_lease(make_store: Make, raw: Redis) -> None:
    store = make_store(lease_s=3000)
    await store.register(config(1))
    await store.register(admin(2))
    await pass_time(raw, 2000)
    await store.register(config(3))
    await pass_time(raw, 2000)
    assert await store.read_registry(0.0) == Registry((admin(2), config(3)))


async def test_a_renewal_keeps_a_configured_worker(make_store: Make, raw: Redis) -> None:
    store = make_store(lease_s=4000)
    for _ in range(4):
        await store.register(config())
        await pass_time(raw, 1500)
    assert await store.read_registry(0.0) == Registry((config(),))
    await pass_time(raw, 4000)
    assert await store.read_registry(0.0) == Registry()
    assert await raw.hlen(WORKERS) == 0, "a reader removes what it found expired"


async def test_the_first_incarnation_of_a_configured_worker_stands_until_its_url_changes(store: RedisStore) -> None:
    await store.register(config(incarnation="first"))
    await store.register(config(incarnation="other process"))
    assert await store.read_registry(0.0) == Registry((config(incarnation="first"),))
    moved = config(incarnation="moved", url="https://h:1")
    await store.register(moved)
    assert await store.read_registry(0.0) == Registry((moved,))


async def test_after_its_lease_a_worker_takes_a_new_incarnation(make_store: Make, raw: Redis) -> None:
    store = make_store(lease_s=1000)
    await store.register(config(incarnation="first"))
    await pass_time(raw, 1001)
    await store.register(config(incarnation="second"))
    assert await store.read_registry(0.0) == Registry((config(incarnation="second"),))


async def test_an_operator_s_registration_stands_over_a_configured_one(store: RedisStore) -> None:
    await store.register(config(incarnation="c"))
    await store.register(admin(incarnation="a"))
    await store.register(config(incarnation="c"))
    assert await store.read_registry(0.0) == Registry((admin(incarnation="a"),))


async def test_only_the_incarnation_that_is_meant_is_deregistered(store: RedisStore) -> None:
    await store.register(config(incarnation="new"))
    assert not await store.deregister("h:1", "old")
    assert await store.read_registry(0.0) == Registry((config(incarnation="new"),))
    assert await store.deregister("h:1", "new")
    assert not await store.deregister("h:1", "new")
    assert not await store.deregister("nobody", "new")
    assert await store.read_registry(0.0) == Registry((), frozenset({"h:1"}))


async def test_a_registration_past_its_lease_cannot_be_deregistered(make_store: Make, raw: Redis) -> None:
    store = make_store(lease_s=1000)
    await store.register(config())
    await pass_time(raw, 1001)
    assert not await store.deregister("h:1", "a")
    assert await store.read_registry(0.0) == Registry()


async def test_a_removal_holds_against_configuration_and_yields_to_an_operator(store: RedisStore) -> None:
    await store.register(config())
    await store.deregister("h:1", "a")
    await store.register(config())
    assert await store.read_registry(0.0) == Registry((), frozenset({"h:1"}))
    await store.register(admin(incarnation="b"))
    assert await store.read_registry(0.0) == Registry((admin(incarnation="b"),))


async def test_a_removal_is_forgotten_after_its_time(make_store: Make, raw: Redis) -> None:
    store = make_store(removal_s=2000)
    await store.register(config())
    await store.deregister("h:1", "a")
    await pass_time(raw, 1900)
    await store.register(config(incarnation="b"))
    assert await store.read_registry(0.0) == Registry((), frozenset({"h:1"}))
    await pass_time(raw, 200)
    await store.register(config(incarnation="b"))
    assert await store.read_registry(0.0) == Registry((config(incarnation="b"),))
    assert await raw.zcard(REMOVED) == 0


async def test_samples_arrive_with_their_age_on_the_reader_s_clock(store: RedisStore) -> None:
    sample = LoadSample(taken_at=40.0, running=3, waiting=2, own_in_flight=1, kv_usage=0.25)
    unknown = LoadSample(taken_at=42.0, running=0, waiting=0, own_in_flight=0)
    begun = time.monotonic()
    await store.publish_load(ProcessLoad("p", {"h:1": 4}, {"h:1": sample, "h:2": unknown}), now=42.0)
    await asyncio.sleep(0.3)
    (load,) = await store.read_loads(now=9000.0)
    passed_s = time.monotonic() - begun + 0.002  # the server's clock is read in whole milliseconds
    assert load.process == "p"
    assert load.in_flight == {"h:1": 4}
    read = load.samples["h:1"]
    assert (read.running, read.waiting, read.own_in_flight, read.kv_usage) == (3, 2, 1, 0.25)
    assert 2.29 < 9000.0 - read.taken_at < 2 + passed_s
    assert load.samples["h:2"].kv_usage is None
    assert 0.29 < 9000.0 - load.samples["h:2"].taken_at < passed_s


async def test_a_sample_from_the_future_is_new_not_newer(store: RedisStore) -> None:
    sample = LoadSample(taken_at=50.0, running=0, waiting=0, own_in_flight=0)
    await store.publish_load(ProcessLoad("p", {}, {"h:1": sample}), now=42.0)
    (load,) = await store.read_loads(now=10.0)
    assert load.samples["h:1"].taken_at <= 10.0


async def test_the_last_load_of_a_process_counts_and_expires(make_store: Make, raw: Redis) -> None:
    store = make_store(load_s=4000)
    await store.publish_load(ProcessLoad("gone", {"h:1": 1}), now=0.0)
    await pass_time(raw, 2500)
    await store.publish_load(ProcessLoad("p", {"h:1": 1}), now=0.0)
    await store.publish_load(ProcessLoad("p", {"h:1": 2}), now=0.0)
    await pass_time(raw, 2500)
    assert await store.read_loads(now=0.0) == [ProcessLoad("p", {"h:1": 2})]
    assert await raw.hlen(LOADS) == 1
    await pass_time(raw, 2500)
    assert await raw.exists(LOADS) == 0


@pytest.mark.parametrize("scripts_too", [False, True])
async def test_a_flushed_server_is_an_empty_store(store: RedisStore, raw: Redis, scripts_too: bool) -> None:
    await store.register(admin())
    await store.deregister("h:1", "a")
    await raw.flushall()
    if scripts_too:
        await raw.script_flush()
    assert await store.read_registry(0.0) == Registry()
    await store.register(config())
    assert await store.read_registry(0.0) == Registry((config(),))
    assert store.state == "up"


async def test_no_key_is_left_outside_the_prefix_or_without_a_deadline(store: RedisStore, raw: Redis) -> None:
    await store.register(config())
    await store.deregister("h:1", "a")
    await store.publish_load(ProcessLoad("p"), now=0.0)
    await store.register(admin(2))
    assert set(await raw.keys("*")) == {WORKERS.encode(), REMOVED.encode(), LOADS.encode()}
    assert await raw.pttl(LOADS) > 0


async def test_an_operators_order_is_read_by_all_ends_and_goes_with_the_worker(
    store: RedisStore, make_store: Make, raw: Redis
) -> None:
    await store.register(admin(1))
    await store.register(admin(2))
    order = Order(OrderKind.CORDON, "it is slow", "ops", 100.0 + 1000.0)
    await store.set_order("h:1", order, 100.0)
    await store.set_order("h:2", order, 100.0)
    await store.set_order("h:2", None, 100.0)
    # On a reader's own clock, from what is left of it on the server's.
    read = (await make_store().read_registry(7.0)).orders
    assert read["h:1"] is not None
    assert read["h:1"].until == pytest.approx(7.0 + 1000.0, abs=PATIENCE_S)
    assert read == {"h:1": replace(order, until=read["h:1"].until), "h:2": None}
    await store.deregister("h:1", "a")
    assert (await store.read_registry(0.0)).orders == {"h:2": None}
    for nonsense in ("nonsense", '{"until":1e400,"order":{}}', '{"order":{"v":1,"kind":"shoot"}}', "[]"):
        await raw.hset(ORDERS, "h:3", nonsense)
        assert (await store.read_registry(0.0)).orders == {"h:2": None}
    assert await raw.pttl(ORDERS) > 0
    await raw.delete(ORDERS)
    await raw.set(ORDERS, "of another type")
    assert (await store.read_registry(0.0)).orders == {}
    await store.set_order("h:2", order, 100.0)
    assert list((await store.read_registry(0.0)).orders) == ["h:2"]
    await store.set_order("h:2", replace(order, until=100.001), 100.0)
    await asyncio.sleep(0.05)
    assert (await store.read_registry(0.0)).orders == {}
