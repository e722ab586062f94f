"""A few connections to the store, used so that a reply is only ever read by the command that asked for it.

redis-py's own pool returns a connection on cancellation and time-out paths that have handed late replies to the next
command. Here each exchange runs in a task of its own, which no caller can cancel; its connection goes back to the pool
after a complete reply and in no other case.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError

from app.core.fleet.errors import StoreUnavailable
from app.store.address import Address
from app.store.errors import describe, map_errors
from app.store.scripts import Script

StartTask = Callable[[Coroutine[Any, Any, Any], str], "asyncio.Task[Any]"]
"""Runs work in a task that somebody holds: `runtime.tasks.Tasks.start`."""

Arguments = list[str | bytes | int]


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """Seconds: connect_s for a new connection with its login, command_s for one command, and as long for a free place
    in the pool. A call takes at most their sum. connections: how many commands may be under way at once."""

    connect_s: float = 0.2
    command_s: float = 0.1
    connections: int = 4


class Connections:
    """Runs scripts. Raises StoreUnavailable within connect_s + 2 · command_s."""

    def __init__(self, address: Address, limits: StoreLimits, start: StartTask) -> None:
        self._address = address
        self._limits = limits
        self._start = start
        self._idle: list[AbstractConnection] = []
        self._places = asyncio.Semaphore(limits.connections)
        self._exchanges: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def run(
        self, script: Script, keys: list[str], arguments: Arguments, ended: Callable[[StoreUnavailable | None], None]
    ) -> Any:
        """The reply of one script. A caller that is cancelled leaves at once; the exchange ends by itself.

        `ended` is told how it ended, exactly once, whether or not the caller is still there.
        """
        if self._closed:
            ended(unavailable := StoreUnavailable("the store is closed"))
            raise unavailable
        task = self._start(self._exchange(script, keys, arguments), f"store {script.name}")
        self._exchanges.add(task)
        # Callbacks run in the order in which they were added, so `ended` runs before the caller goes on.
        task.add_done_callback(self._exchanges.discard)
        task.add_done_callback(lambda task: ended(_unavailable(task)))
        await asyncio.wait({task})
        unavailable_or_none = _unavailable(task)
        if unavailable_or_none is not None:
            raise unavailable_or_none
        return task.result()

    async def close(self) -> None:
        """End exchanges under way and close all connections."""
        self._closed = True
        running = list(self._exchanges)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        while self._idle:
            await _discard(self._idle.pop())

    async def _exchange(self, script: Script, keys: list[str], arguments: Arguments) -> Any:
        """The reply, or StoreUnavailable as a value: nobody may be left to raise it to."""
        try:
            with map_errors(self._address.secrets):
                return await self._ask(script, keys, arguments)
        except StoreUnavailable as unavailable:
            return unavailable
        except Exception as error:
            # A connection that was closed under it fails in the client library with whatever it had in hand.
            return StoreUnavailable(describe(error, self._address.secrets))

    async def _ask(self, script: Script, keys: list[str], arguments: Arguments) -> Any:
        try:
            async with asyncio.timeout(self._limits.command_s):
                await self._places.acquire()
        except TimeoutError:
            raise StoreUnavailable(f"all {self._limits.connections} connections to the store are busy") from None
        connection: AbstractConnection | None = None
        complete = False
        try:
            connection = await self._usable()
            async with asyncio.timeout(self._limits.command_s):
                reply = await _evaluate(connection, script, keys, arguments)
            complete = True
            return reply
        finally:
            self._places.release()
            if connection is not None:
                if complete and not self._closed:
                    self._idle.append(connection)
                else:
                    await _discard(connection)

    async def _usable(self) -> AbstractConnection:
        """An idle connection that is clean, or a new one."""
        while self._idle:
            connection = self._idle.pop()
            with suppress(Exception):
                if not await connection.can_read():
                    return connection
            # Closed by the server while it was idle (a restart), or holding bytes that nobody asked for.
            await _discard(connection)
        connection = self._address.connection_class(
            **self._address.options,
            protocol=2,
            socket_timeout=self._limits.connect_s,
            socket_connect_timeout=self._limits.connect_s,
            retry=Retry(NoBackoff(), 0),
            driver_info=None,
        )
        try:
            async with asyncio.timeout(self._limits.connect_s):
                await connection.connect()  # type: ignore[no-untyped-call]
        except BaseException:
            await _discard(connection)
            raise
        return connection


def _unavailable(task: asyncio.Task[Any]) -> StoreUnavailable | None:
    if task.cancelled():
        return StoreUnavailable("the gateway is stopping")
    outcome = task.result()
    return outcome if isinstance(outcome, StoreUnavailable) else None


async def _evaluate(connection: AbstractConnection, script: Script, keys: list[str], arguments: Arguments) -> Any:
    await connection.send_command("EVALSHA", script.sha, len(keys), *keys, *arguments)
    try:
        return await connection.read_response()
    except NoScriptError:
        # A server that restarted, failed over or was flushed of scripts. EVAL loads it again.
        await connection.send_command("EVAL", script.text, len(keys), *keys, *arguments)
        return await connection.read_response()


async def _discard(connection: AbstractConnection) -> None:
    """Close without waiting: the other side may be the one that does not answer."""
    with suppress(Exception):
        await connection.disconnect(nowait=True)
