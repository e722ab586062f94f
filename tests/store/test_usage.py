"""What gateways tell each other of tenants, on a real server."""

from collections.abc import Callable

import pytest
from redis.asyncio import Redis

from app.core.fleet.tenant import GatewayUsage
from app.store.redis import RedisStore
from tests.store.conftest import pass_time

Make = Callable[..., RedisStore]
KEY = "warmset:{tenants}:usage"
ROW = [1.5, 2.0, 3.0, 4.0, 5.0, 6.0]


def usage(gateway: str, processes: int = 1) -> GatewayUsage:
    return GatewayUsage(gateway, processes, {"ab12": [ROW] * processes})


async def test_everybody_sees_everybody(make_store: Make, raw: Redis) -> None:
    store = make_store(load_s=1000)
    assert await store.exchange_usage(usage("a", 2)) == [usage("a", 2)]
    found = await make_store(load_s=1000).exchange_usage(usage("b"))
    assert sorted(found, key=lambda each: each.gateway) == [usage("a", 2), usage("b")]
    assert 0 < await raw.pttl(KEY) <= 1_000_000


async def test_a_gateway_that_is_gone_is_forgotten(make_store: Make, raw: Redis) -> None:
    await make_store(load_s=1000).exchange_usage(usage("a"))
    await pass_time(raw, 1001)
    assert await make_store().exchange_usage(usage("b")) == [usage("b")]


@pytest.mark.parametrize(
    "value",
    [
        "nonsense",
        "[]",
        '{"until":9999999999999}',
        '{"until":9999999999999,"usage":{"v":2,"processes":1,"scopes":{}}}',
        '{"until":9999999999999,"usage":{"v":1,"processes":0,"scopes":{}}}',
        '{"until":9999999999999,"usage":{"v":1,"processes":true,"scopes":{}}}',
        '{"until":9999999999999,"usage":{"v":1,"processes":1,"scopes":[]}}',
        '{"until":9999999999999,"usage":{"v":1,"processes":2,"scopes":{"s":[[1,1,1,1,1,1]]}}}',
        '{"until":9999999999999,"usage":{"v":1,"processes":1,"scopes":{"s":[[1,1,1]]}}}',
        '{"until":9999999999999,"usage":{"v":1,"processes":1,"scopes":{"s":[[1,1,-1,1,1,1]]}}}',
        '{"until":9999999999999,"usage":{"v":1,"processes":1,"scopes":{"s":[[1,1,1e300,1,1,1]]}}}',
        '{"until":9999999999999,"usage":{"v":1,"processes":1,"scopes":{"s":[["1",1,1,1,1,1]]}}}',
    ],
)
async def test_what_is_not_ours_is_skipped_and_counted(store: RedisStore, raw: Redis, value: str) -> None:
    await raw.hset(KEY, "evil", value)
    assert await store.exchange_usage(usage("a")) == [usage("a")]
    assert store.malformed == 1


async def test_a_key_of_another_type_is_replaced(store: RedisStore, raw: Redis) -> None:
    await raw.set(KEY, "x")
    assert await store.exchange_usage(usage("a")) == [usage("a")]
