"""A real server for the whole run, emptied for each test, and stores on it."""

import os
import random
import re
import socket
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
from tests.patience import FOR_EVER_S, until

PATIENT = StoreLimits(connect_s=FOR_EVER_S, command_s=FOR_EVER_S)
"""For tests of something else than time: the machine of a test run is not its own."""


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    tasks = Tasks()
    yield tasks
    await tasks.stop()


def answers(path: Path) -> bool:
    """Whether a server takes connections there. Its socket is there a moment before."""
    with socket.socket(socket.AF_UNIX) as end:
        return end.connect_ex(str(path)) == 0


STAMP = re.compile(rb'(?<="until":)[1-9]\d*|(?<="at":)\d+')
"""A time in a stored value; 0 is none."""


async def pass_time(raw: Redis, seconds: float) -> None:
    """Make everything in the store so much older. What a lease is for can be seen without waiting for its end."""
    ms = round(seconds * 1000)
    for key in await raw.keys("*"):
        kind = await raw.type(key)
        if kind == b"hash":
            for name, value in (await raw.hgetall(key)).items():
                if name == b"until":
                    value = b"%d" % (int(value) - ms)
                await raw.hset(key, name, STAMP.sub(lambda found: b"%d" % (int(found[0]) - ms), value))
        elif kind == b"zset":
            for name, score in await raw.zrange(key, 0, -1, withscores=True):
                await raw.zadd(key, {name: score - ms})
        left = await raw.pttl(key)
        if left >= 0:
            await raw.pexpire(key, left - ms)  # at once when that is not positive


@pytest.fixture(scope="session")
def shared_url() -> Iterator[str]:
    """The launcher makes sure that this server does not outlive the test run either."""
    mode = "prctl" if sys.platform == "linux" else "watch"
    with tempfile.TemporaryDirectory(prefix="warmset-") as folder:
        path = Path(folder) / "s"
        launcher = [sys.executable, "-I", "-S", str(LAUNCHER), mode, str(os.getpid()), str(find_binary())]
        options = ["--port", "0", "--unixsocket", str(path), "--save", "", "--dir", folder]
        with subprocess.Popen(launcher + options, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as server:
            until(lambda: server.poll() is not None or answers(path))
            assert server.poll() is None
            yield f"unix://{path}"
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
        lasting = dict.fromkeys(("lease_s", "load_s", "removal_s"), FOR_EVER_S)
        settings = {"clock": time.monotonic, "rng": random.Random(1), "limits": PATIENT, **lasting, **options}
        store = RedisStore(other_url or url, start=tasks.start, **settings)  # type: ignore[arg-type]
        made.append(store)
        return store

    yield make
    for store in made:
        await store.close()


@pytest.fixture
async def store(make_store: Callable[..., RedisStore]) -> RedisStore:
    return make_store()
