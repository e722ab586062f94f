"""A real server per test module, and stores on it under a prefix of their own."""

import random
import time
from collections.abc import AsyncIterator, Callable

import pytest
from redis.asyncio import Redis

from app.runtime.tasks import Tasks
from app.store.connections import StoreLimits
from app.store.embedded import EmbeddedServer
from app.store.redis import RedisStore

TEST_LIMITS = StoreLimits(connect_s=1.0, command_s=0.5)
"""Five times what is promised: the machine of a test run is not its own."""


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    tasks = Tasks()
    yield tasks
    await tasks.stop()


@pytest.fixture
async def server(tasks: Tasks) -> AsyncIterator[EmbeddedServer]:
    server = EmbeddedServer(start=tasks.start)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def raw(server: EmbeddedServer) -> AsyncIterator[Redis]:
    """A client that can write anything."""
    client = Redis.from_url(server.url)
    yield client
    await client.aclose()


MakeStore = Callable[..., RedisStore]


@pytest.fixture
async def make_store(server: EmbeddedServer, tasks: Tasks) -> AsyncIterator[MakeStore]:
    made: list[RedisStore] = []

    def make(url: str | None = None, **options: object) -> RedisStore:
        settings = {"clock": time.monotonic, "rng": random.Random(1), "limits": TEST_LIMITS, **options}
        store = RedisStore(url or server.url, start=tasks.start, **settings)  # type: ignore[arg-type]
        made.append(store)
        return store

    yield make
    for store in made:
        await store.close()


@pytest.fixture
async def store(make_store: MakeStore) -> RedisStore:
    return make_store()
