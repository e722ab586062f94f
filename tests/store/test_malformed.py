"""What is in the store is input: it is checked, skipped, counted and logged once, and never raises."""

import logging

import orjson
import pytest
from redis.asyncio import Redis

from app.core.fleet.registry import ProcessLoad, Registration, Registry, WorkerSource
from app.store.codec import MAX_REGISTRATION_BYTES
from app.store.redis import RedisStore

WORKERS = "warmset:{registry}:workers"
REMOVED = "warmset:{registry}:removed"
LOADS = "warmset:{load}:processes"

GOOD = Registration("h:1", "http://h:1", "a", WorkerSource.ADMIN)
VALUE = {"v": 1, "id": "x:80", "url": "http://x:80", "incarnation": "a", "source": "admin"}


def entry(**changes: object) -> bytes:
    return orjson.dumps({"until": 0, "registration": {**VALUE, **changes}})


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[1]",
        b"{}",
        b'{"until":0,"registration":7}',
        b'{"until":0,"registration":{}}',
        b"[" * 5000,
        entry(v=2),
        entry(id="y"),
        entry(url="http://x"),
        entry(url="http://X:80"),
        entry(url="https://y:80"),
        entry(url="http://x:80/"),
        entry(url="http://x:80/metadata"),
        entry(url="http://2852039166:80", id="2852039166:80"),
        entry(url="ftp://x"),
        entry(url="http://"),
        entry(url="http://[::1"),
        entry(url="http://x:99999"),
        entry(url="http://user@x"),
        entry(url="http://x\r\nHost: y"),
        entry(url=7),
        entry(incarnation=""),
        entry(incarnation=None),
        entry(source="somebody"),
        entry(padding="x" * MAX_REGISTRATION_BYTES),
    ],
)
async def test_a_malformed_registration_is_skipped(store: RedisStore, raw: Redis, value: bytes) -> None:
    await raw.hset(WORKERS, "x:80", value)
    await store.register(GOOD)
    assert await store.read_registry(0.0) == Registry((GOOD,))
    assert store.malformed == 1
    assert store.state == "up"
    assert not await store.deregister("x:80", "b")
    # An operator can put it right.
    right = Registration("x:80", "http://x:80", "b", WorkerSource.ADMIN)
    await store.register(right)
    assert await store.read_registry(0.0) == Registry((GOOD, right))


async def test_a_configured_worker_takes_the_place_of_a_malformed_entry(store: RedisStore, raw: Redis) -> None:
    await raw.hset(WORKERS, "h:1", b"rubbish")
    right = Registration("h:1", "http://h:1", "b", WorkerSource.CONFIG)
    await store.register(right)
    assert await store.read_registry(0.0) == Registry((right,))


async def test_members_that_a_later_version_adds_are_ignored(store: RedisStore, raw: Redis) -> None:
    await raw.hset(WORKERS, "x:80", entry(added={"in": "v1.1"}))
    assert await store.read_registry(0.0) == Registry((Registration("x:80", "http://x:80", "a", WorkerSource.ADMIN),))
    assert store.malformed == 0


async def test_each_malformed_entry_is_counted_every_time_and_logged_once(
    store: RedisStore, raw: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    await raw.hset(WORKERS, "secret\nname", b"rubbish")
    with caplog.at_level(logging.WARNING, "warmset.store"):
        for _ in range(3):
            await store.read_registry(0.0)
    assert store.malformed == 3
    assert [record.message for record in caplog.records] == [
        "skipped a malformed registration in the store: it is not JSON"
    ]


async def test_a_name_that_is_not_utf8_is_skipped(store: RedisStore, raw: Redis) -> None:
    await raw.hset(WORKERS, b"\xff", entry())
    assert await store.read_registry(0.0) == Registry()
    assert store.malformed == 1


@pytest.mark.parametrize(
    "load",
    [
        7,
        {"v": 1},
        {"v": 9, "in_flight": {}, "samples": {}},
        {"v": 1, "in_flight": [], "samples": {}},
        {"v": 1, "in_flight": {"h": -1}, "samples": {}},
        {"v": 1, "in_flight": {"h": True}, "samples": {}},
        {"v": 1, "in_flight": {"h": "1"}, "samples": {}},
        {"v": 1, "in_flight": {"": 1}, "samples": {}},
        {"v": 1, "in_flight": {}, "samples": {"h": 1}},
        {"v": 1, "in_flight": {}, "samples": {"h": [1, 2, 3, 4]}},
        {"v": 1, "in_flight": {}, "samples": {"h": [-5, 1, 1, 1, None]}},
        {"v": 1, "in_flight": {}, "samples": {"h": [0, 1, 1, 1, 3.5]}},
        {"v": 1, "in_flight": {}, "samples": {"h": [0, 1, 1, 1, True]}},
        {"v": 1, "in_flight": {}, "samples": {"h": [0, 10**12, 1, 1, None]}},
    ],
)
async def test_a_malformed_load_is_skipped(store: RedisStore, raw: Redis, load: object) -> None:
    await store.publish_load(ProcessLoad("good", {"h": 1}), now=0.0)
    await raw.hset(LOADS, "bad", orjson.dumps({"until": 10**14, "at": 0, "load": load}))
    assert await store.read_loads(0.0) == [ProcessLoad("good", {"h": 1})]
    assert store.malformed == 1


async def test_a_load_without_a_time_of_publication_is_skipped(store: RedisStore, raw: Redis) -> None:
    await raw.hset(LOADS, "bad", b'{"load":{"v":1,"in_flight":{},"samples":{}}}')
    assert await store.read_loads(0.0) == []
    assert store.malformed == 1


async def test_keys_of_another_type_are_read_as_empty_and_written_over(store: RedisStore, raw: Redis) -> None:
    for key in (WORKERS, REMOVED, LOADS):
        await raw.set(key, "text")
    assert await store.read_registry(0.0) == Registry()
    assert await store.read_loads(0.0) == []
    assert not await store.deregister("h:1", "a")
    assert store.malformed == 2
    await store.register(GOOD)
    await raw.set(REMOVED, "text")
    assert await store.deregister("h:1", "a")
    assert await store.read_registry(0.0) == Registry((), frozenset({"h:1"}))
    await store.publish_load(ProcessLoad("p"), now=0.0)
    assert await store.read_loads(0.0) == [ProcessLoad("p")]
    assert store.state == "up"
