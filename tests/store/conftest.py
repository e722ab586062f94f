"""A real server for the whole run, emptied for each test, and stores on it."""

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from app.runtime.tasks import Tasks
from app.store.connections import StoreLimits
from app.store.embedded import LAUNCHER
from app.store.folder import find_binary
from app.store.redis import RedisStore

TEST_LIMITS = StoreLimits(connect_s=1.0, command_s=0.5)
"""Five times what is promised: the machine of a test run is not its own."""


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    tasks = Tasks()
    yield tasks
    await tasks.stop()


@pytest.fixture(scope="session")
def shared_url() -> Iterator[str]:
    """The launcher makes sure that this server does not outlive the test run either."""
    mode = "prctl" if sys.platform == "linux" else "watch"
    with tempfile.TemporaryDirectory(prefix="warmset-") as folder:
        socket = Path(folder) / "s"
        launcher = [sys.executable, "-I", "-S", str(LAUNCHER), mode, str(os.getpid()), str(find_binary())]
        options = ["--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", folder]
        with subprocess.Popen(launcher + options, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as server:
            while not socket.exists():
                assert server.poll() is None
                time.sleep(0.01)
            yield f"unix://{socket}"
            server.terminate()


@pytest.fixture
async def url(shared_url: str) -> str:
    """The server of this test, empty. A module whose tests harm it has its own."""
    client = Redis.from_url(shared_url)
    await client.flushall()
    await client.aclose()
    return shared_url


@pytest.fixture
async def raw(url: str) -> AsyncIterator[Redis]:
    """A client that can write anything."""
    client = Redis.from_url(url)
    yield client
    await client.aclose()


@pytest.fixture
async def make_store(url: str, tasks: Tasks) -> AsyncIterator[Callable[..., RedisStore]]:
    made: list[RedisStore] = []

    def make(other_url: str | None = None, **options: object) -> RedisStore:
        settings = {"clock": time.monotonic, "rng": random.Random(1), "limits": TEST_LIMITS, **options}
        store = RedisStore(other_url or url, start=tasks.start, **settings)  # type: ignore[arg-type]
        made.append(store)
        return store

    yield make
    for store in made:
        await store.close()


@pytest.fixture
async def store(make_store: Callable[..., RedisStore]) -> RedisStore:
    return make_store()
