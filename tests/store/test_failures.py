"""A store that is slow, stopped, killed or full: calls end in time, and no call reads another one's reply."""

import asyncio
import logging
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import pytest
from redis.asyncio import Redis
from redis.asyncio.connection import UnixDomainSocketConnection

from app.core.fleet.errors import StoreUnavailable
from app.core.fleet.registry import ProcessLoad, Registration, Registry, WorkerSource
from app.runtime.tasks import Tasks
from app.store.address import Address
from app.store.connections import Connections, StoreLimits
from app.store.embedded import EmbeddedServer
from app.store.keys import Keys
from app.store.redis import RedisStore
from app.store.scripts import READ_LOADS, READ_REGISTRY
from tests.patience import FOR_EVER_S, eventually, soon
from tests.store.conftest import pass_time

Make = Callable[..., RedisStore]
Answer = TypeVar("Answer")

GOOD = Registration("h:1", "http://h:1", "a", WorkerSource.ADMIN)
QUICK = StoreLimits(connect_s=0.2, command_s=0.1)
"""Of calls that are to fail, or may. Those that are to end well have all the time that they need, or another try."""


@pytest.fixture
async def server(tasks: Tasks) -> AsyncIterator[EmbeddedServer]:
    """A server that may be stopped and killed."""
    server = EmbeddedServer(start=tasks.start)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
def url(server: EmbeddedServer) -> str:
    return server.url


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def refused(call: Awaitable[object]) -> str:
    """Fails when the call waits for a server that does not answer."""
    with pytest.raises(StoreUnavailable) as raised:
        await soon(call)
    return str(raised.value)


async def answered(call: Callable[[], Awaitable[Answer]]) -> Answer:
    """What a call gives at last: it may run out of time, and is then made again."""

    async def attempt() -> tuple[Answer] | None:
        try:
            return (await call(),)
        except StoreUnavailable:
            return None

    (answer,) = await eventually(attempt)
    return answer  # type: ignore[no-any-return]


async def test_nobody_listens(make_store: Make) -> None:
    store = make_store("unix:///nowhere/at/all.sock")
    assert store.state == "unknown"
    await refused(store.read_registry(0.0))
    assert store.state == "unknown"
    for call in (store.register(GOOD), store.deregister("h:1", "a")):
        await refused(call)
    assert store.state == "down"
    assert "No such file" in store.last_error
    await refused(store.publish_load(ProcessLoad("p"), 0.0))
    await refused(store.read_loads(0.0))


async def test_it_opens_after_three_failures_refuses_at_once_and_lets_one_try(make_store: Make) -> None:
    clock = Clock()
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    store = make_store(f"redis://127.0.0.1:{port}", clock=clock, rng=random.Random(7))
    for _ in range(3):
        await refused(store.read_registry(0.0))
    assert (store.state, connections) == ("down", 3)
    for _ in range(20):
        await refused(store.read_registry(0.0))
    assert connections == 3
    clock.now = 0.99
    await refused(store.read_registry(0.0))
    assert connections == 3
    clock.now = 5.0
    together = await asyncio.gather(*(store.read_registry(0.0) for _ in range(5)), return_exceptions=True)
    assert all(isinstance(outcome, StoreUnavailable) for outcome in together)
    assert connections == 4, "one call tries, the others are refused"
    await refused(store.read_registry(0.0))
    assert connections == 4, "and when it fails, the breaker is open again at once"
    listener.close()
    await listener.wait_closed()


async def test_the_pause_is_drawn_for_each_replica(make_store: Make) -> None:
    pauses = set()
    for seed in range(20):
        clock = Clock()
        store = make_store("unix:///nowhere.sock", clock=clock, rng=random.Random(seed))
        for _ in range(3):
            await refused(store.read_registry(0.0))
        while "down:" in await refused(store.read_registry(0.0)):
            clock.now += 0.25
        assert 1.0 <= clock.now <= 5.25
        pauses.add(clock.now)
    assert len(pauses) > 5


async def test_transitions_are_one_log_line_each_and_show_no_secret(
    server: EmbeddedServer, raw: Redis, make_store: Make, caplog: pytest.LogCaptureFixture
) -> None:
    await raw.config_set("requirepass", "s3cret")
    clock = Clock()
    with caplog.at_level(logging.INFO, "warmset"):
        store = make_store(f"{server.url}?password=wrong-s3cret", clock=clock)
        for _ in range(5):
            await refused(store.read_registry(0.0))
        assert "s3cret" not in repr(store) + store.last_error + store.shown_url
        right = make_store(f"{server.url}?password=s3cret", clock=clock)
        for _ in range(5):
            assert await right.read_registry(0.0) == Registry()
    lines = [record.getMessage() for record in caplog.records if record.name == "warmset.store"]
    assert [line.split(":")[0] for line in lines] == ["store is down", "store is up"]
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize(
    "url",
    [
        "http://h",
        "redis://:pa/ss@h:6379",
        "redis://h:99999",
        "redis://h?socket_timeout=50",
        "unix://",
        "redis://h?password=x&nonsense=s3cret",
    ],
)
def test_a_bad_url_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(ValueError, match="store's URL") as raised:
        RedisStore(url, start=Tasks().start, clock=time.monotonic, rng=random.Random(0))
    assert "pa" not in str(raised.value).replace("password", "").replace("path", "")
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:pw@h/3", "redis://h:6379/3"),
        ("rediss://:pw@[::1]:7000", "rediss://[::1]:7000/0"),
        ("unix:///tmp/x.sock?db=1&password=pw", "unix:///tmp/x.sock"),
    ],
)
def test_an_address_is_shown_without_secrets(url: str, shown: str) -> None:
    store = RedisStore(url, start=Tasks().start, clock=time.monotonic, rng=random.Random(0))
    assert repr(store) == f"RedisStore({shown}, unknown)"


def test_a_prefix_with_braces_is_refused() -> None:
    with pytest.raises(ValueError, match="braces"):
        RedisStore("redis://h", start=Tasks().start, clock=time.monotonic, rng=random.Random(0), prefix="{a}:")


async def test_a_full_server_is_unavailable_for_writes_and_still_read(store: RedisStore, raw: Redis) -> None:
    await store.register(GOOD)
    await raw.config_set("maxmemory", 1)
    assert "maxmemory" in await refused(store.publish_load(ProcessLoad("p"), 0.0))
    assert (await store.read_registry(0.0)).registrations == (GOOD,)
    await raw.config_set("maxmemory", 0)
    await store.publish_load(ProcessLoad("p"), 0.0)


async def test_a_read_only_replica_is_unavailable_for_writes_and_still_read(make_store: Make, raw: Redis) -> None:
    store = make_store(lease_s=1000)
    await store.register(Registration("h:2", "http://h:2", "a", WorkerSource.CONFIG))
    await store.register(GOOD)
    await pass_time(raw, 1001)
    await raw.execute_command("REPLICAOF", "127.0.0.1", "1")
    await raw.config_set("replica-serve-stale-data", "yes")
    assert "READONLY" in (await refused(store.register(GOOD))).upper().replace("READ ONLY", "READONLY")
    assert (await store.read_registry(0.0)).registrations == (GOOD,), "what expired is left out, even if it cannot go"


async def test_a_reply_that_comes_late_is_not_the_next_command_s(make_store: Make) -> None:
    """The first reply is late, and says something else than all others."""
    is_late = True
    late = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal is_late
        try:
            while head := await reader.readline():
                for _ in range(int(head[1:])):
                    await reader.readexactly(int((await reader.readline())[1:]) + 2)
                says, is_late = b"late" if is_late else b"good", False
                if says == b"late":
                    await late.wait()
                writer.write(b"*5\r\n$1\r\n0\r\n*0\r\n*1\r\n$4\r\n" + says + b"\r\n*0\r\n:0\r\n")
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    store = make_store(f"redis://127.0.0.1:{port}", limits=QUICK)
    for _ in range(2):
        while is_late:  # until it has met the one that is late
            await refused(store.read_registry(0.0))
        late.set()
        await asyncio.sleep(0.1)
        for _ in range(3):
            assert (await answered(lambda: store.read_registry(0.0))).removed == {"good"}
        late.clear()
        is_late = True
    listener.close()
    await store.close()
    await listener.wait_closed()


async def test_a_connection_that_the_client_library_would_keep_is_closed_all_the_same(
    server: EmbeddedServer, tasks: Tasks
) -> None:
    """redis-py closes a connection on most ways out of a read. We do not build on it."""

    class Kept(UnixDomainSocketConnection):
        async def read_response(self, *arguments: Any, **options: Any) -> Any:
            return await super().read_response(*arguments, **{**options, "disconnect_on_error": False})

    address = Address(server.url)
    address.connection_class = Kept
    connections = Connections(address, StoreLimits(connect_s=FOR_EVER_S, command_s=0.2), tasks.start)
    keys = Keys()

    def ended(error: StoreUnavailable | None) -> None:
        pass

    def read_registry() -> Awaitable[Any]:
        return connections.run(READ_REGISTRY, [keys.workers, keys.removed, keys.orders], [], ended)

    assert server.pid is not None
    assert (await answered(read_registry))[1:] == [[], [], [], 0]
    os.kill(server.pid, signal.SIGSTOP)
    await refused(read_registry())
    # The server goes on while the next command waits, and answers the first one, too.
    asyncio.get_running_loop().call_later(0.05, os.kill, server.pid, signal.SIGCONT)
    server_ms, *loads = await answered(lambda: connections.run(READ_LOADS, [keys.loads], [], ended))
    assert int(server_ms) > 0
    assert loads == [[], 0]
    await connections.close()


@pytest.mark.parametrize("after", [0.0, 0.02, 0.2])
async def test_a_caller_that_leaves_does_not_disturb_the_others(
    server: EmbeddedServer, make_store: Make, after: float
) -> None:
    """Callers are cancelled before, while and after the server is stopped; later replies are those asked for."""
    store = make_store(limits=StoreLimits(connect_s=FOR_EVER_S, command_s=FOR_EVER_S, connections=2))
    await store.register(GOOD)
    await store.publish_load(ProcessLoad("p", {"h:1": 1}), 0.0)
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    calls = [asyncio.create_task(store.read_registry(0.0)), asyncio.create_task(store.read_loads(0.0))]
    await asyncio.sleep(after)
    for call in calls:
        call.cancel()
    # Who is cancelled leaves at once: the server answers when we are through.
    outcomes = await soon(asyncio.gather(*calls, return_exceptions=True))
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
    os.kill(server.pid, signal.SIGCONT)
    for _ in range(10):
        assert await store.read_loads(0.0) == [ProcessLoad("p", {"h:1": 1})]
        assert (await store.read_registry(0.0)).registrations == (GOOD,)


async def test_callers_cancelled_at_any_moment_leave_right_connections(make_store: Make) -> None:
    chance = random.Random(3)
    store = make_store()
    await store.register(GOOD)
    await store.publish_load(ProcessLoad("p", {"h:1": 1}), 0.0)

    async def ask(number: int) -> None:
        if number % 2:
            assert (await store.read_registry(0.0)).registrations == (GOOD,)
        else:
            assert await store.read_loads(0.0) == [ProcessLoad("p", {"h:1": 1})]

    for _ in range(40):
        calls = [asyncio.create_task(ask(number)) for number in range(8)]
        await asyncio.sleep(chance.random() * 0.003)
        for call in chance.sample(calls, 4):
            call.cancel()
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            assert outcome is None or isinstance(outcome, asyncio.CancelledError)
    assert store.state == "up"


async def test_a_stopped_server_costs_each_call_its_limit_and_then_nothing(
    server: EmbeddedServer, make_store: Make
) -> None:
    stopped_at: float | None = None
    store = make_store(limits=QUICK, clock=lambda: stopped_at or time.monotonic())
    load = ProcessLoad("p", {"h:1": 1})
    await answered(lambda: store.register(GOOD))
    await answered(lambda: store.publish_load(load, 0.0))
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    for _ in range(3):
        await refused(store.read_loads(0.0))
    assert store.state == "down"
    stopped_at = store.since
    run, store._connections.run = store._connections.run, None  # type: ignore[assignment]
    for _ in range(100):
        assert (await refused(store.read_registry(0.0))).startswith("the store is down:"), "nobody is asked"
    store._connections.run = run  # type: ignore[method-assign]
    os.kill(server.pid, signal.SIGCONT)
    stopped_at = None
    for _ in range(20):
        assert await answered(lambda: store.read_loads(0.0)) == [load]
        assert (await answered(lambda: store.read_registry(0.0))).registrations == (GOOD,)
    assert store.state == "up"


async def test_more_calls_than_connections_wait_no_longer_than_a_command(
    server: EmbeddedServer, make_store: Make
) -> None:
    store = make_store(limits=StoreLimits(connect_s=FOR_EVER_S, command_s=0.2, connections=1))
    await answered(lambda: store.register(GOOD))
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    outcomes = await soon(asyncio.gather(*(store.read_registry(0.0) for _ in range(6)), return_exceptions=True))
    texts = sorted(str(outcome) for outcome in outcomes)
    assert all(isinstance(outcome, StoreUnavailable) for outcome in outcomes)
    assert any("busy" in text for text in texts)
    os.kill(server.pid, signal.SIGCONT)


async def test_a_killed_server_comes_back_empty_under_the_same_address(
    server: EmbeddedServer, make_store: Make
) -> None:
    store = make_store()
    await store.register(GOOD)
    killed = server.pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)

    assert await answered(lambda: store.read_registry(0.0)) == Registry()
    assert server.restarts == 1
    assert server.pid not in (None, killed)
    await store.register(GOOD)
    assert (await store.read_registry(0.0)).registrations == (GOOD,)


async def test_a_closed_store_is_unavailable(make_store: Make, server: EmbeddedServer) -> None:
    store = make_store()
    await store.register(GOOD)
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    call = asyncio.create_task(store.read_registry(0.0))
    await asyncio.sleep(0.02)
    await store.close()
    await refused(call)
    await refused(store.read_registry(0.0))
    os.kill(server.pid, signal.SIGCONT)
    await store.close()
