"""What gateways tell each other of marks, on a real server."""

from collections.abc import Callable

import pytest
from redis.asyncio import Redis

from app.core.fleet.events import MarkTold
from app.core.fleet.reasons import MarkKind
from app.core.fleet.registry import GatewayMarks
from app.store.redis import RedisStore
from tests.store.conftest import pass_time

Make = Callable[..., RedisStore]
KEY = "warmset:{marks}:held"
NOW = 1000.0


def marks(gateway: str, *lefts: float, after_seq: int = -1) -> GatewayMarks:
    told = [
        MarkTold("w:1", "i", f"{gateway}#1", MarkKind.OVERLOAD, place, after_seq, NOW + left)
        for place, left in enumerate(lefts)
    ]
    return GatewayMarks(gateway, tuple(told))


async def test_each_sees_the_others_with_the_time_that_is_left(make_store: Make, raw: Redis) -> None:
    await make_store().exchange_marks(marks("a", 20.0, 40.0, after_seq=7), NOW)
    await pass_time(raw, 5)
    # The reader's clock has nothing to do with the writer's.
    found = await make_store().exchange_marks(marks("b"), 50.0)
    (told,) = [gateway for gateway in found if gateway.gateway == "a"]
    assert [mark.until for mark in told.marks] == pytest.approx([65.0, 85.0], abs=3)
    assert {(mark.worker_id, mark.incarnation, mark.reporter, mark.kind, mark.after_seq) for mark in told.marks} == {
        ("w:1", "i", "a#1", MarkKind.OVERLOAD, -1)
    }, "a count of observations is its gateway's own"


async def test_what_is_over_is_forgotten_by_itself(make_store: Make, raw: Redis) -> None:
    await make_store().exchange_marks(marks("a", 20.0), NOW)
    assert 0 < await raw.pttl(KEY) <= 20_000
    await make_store().exchange_marks(marks("b", 200.0), NOW)
    await make_store().exchange_marks(marks("c", 2.0), NOW)
    assert await raw.pttl(KEY) > 100_000, "the longest of all"
    await pass_time(raw, 21)
    found = await make_store().exchange_marks(marks("d"), NOW)
    assert [gateway.gateway for gateway in found] == ["b"]


async def test_who_has_none_any_more_leaves_nothing(store: RedisStore, raw: Redis) -> None:
    await store.exchange_marks(marks("a", 20.0), NOW)
    assert await store.exchange_marks(marks("a"), NOW) == []
    assert not await raw.exists(KEY)


async def test_a_kind_that_a_later_version_knows_is_left_out(store: RedisStore, raw: Redis) -> None:
    later = '[["w","i","g","melting",1,5000],["w","i","g","failing",1,5000]]'
    await raw.hset(KEY, "later", f'{{"until":9999999999999,"at":0,"marks":{{"v":1,"held":{later}}}}}')
    (gateway,) = await store.exchange_marks(marks("a"), NOW)
    assert [mark.kind for mark in gateway.marks] == [MarkKind.FAILING]
    assert store.malformed == 0


@pytest.mark.parametrize(
    "value",
    [
        "nonsense",
        '{"until":9999999999999}',
        '{"until":9999999999999,"at":1,"marks":{"v":2,"held":[]}}',
        '{"until":9999999999999,"at":1,"marks":{"v":1,"held":{}}}',
        '{"until":9999999999999,"at":1,"marks":{"v":1,"held":[["w","i","g"]]}}',
        '{"until":9999999999999,"at":1,"marks":{"v":1,"held":[["w","i","","overload",1,5]]}}',
        '{"until":9999999999999,"at":1,"marks":{"v":1,"held":[["w",1,"g","overload",1,5]]}}',
        '{"until":9999999999999,"at":1,"marks":{"v":1,"held":[["w","i","g","overload",-1,5]]}}',
        '{"until":9999999999999,"at":1,"marks":{"v":1,"held":[["w","i","g","overload",1,1e300]]}}',
    ],
)
async def test_what_is_not_ours_is_skipped_and_counted(store: RedisStore, raw: Redis, value: str) -> None:
    await raw.hset(KEY, "evil", value)
    found = await store.exchange_marks(marks("a", 5.0), NOW)
    assert [gateway.gateway for gateway in found] == ["a"]
    assert store.malformed == 1


async def test_no_one_can_mark_for_ever(store: RedisStore, raw: Redis) -> None:
    ages = '{"until":9999999999999,"at":9999999999999,"marks":{"v":1,"held":[["w","i","g","overload",1,999999999]]}}'
    await raw.hset(KEY, "evil", ages)
    (gateway,) = await store.exchange_marks(marks("a"), NOW)
    assert gateway.marks[0].until <= NOW + 400


async def test_a_key_of_another_type_is_replaced(store: RedisStore, raw: Redis) -> None:
    await raw.set(KEY, "x")
    assert len(await store.exchange_marks(marks("a", 5.0), NOW)) == 1
