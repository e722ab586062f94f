"""Keeps a stream alive that its worker has not begun: proxies on the way, and clients, give up on silence.

Rule 1: what is sent is comments, and only before the first event, so no client takes them for one. A comment is one
line without a blank one behind it: some clients make an empty event of every blank line.
Rule 2: it ends before anybody else sends anything of the answer. `stop` does that at once, see reply.py.
Rule 3: its price is the worker's status, which cannot be told any more once an answer was begun in its place.
"""

import asyncio
from collections.abc import Awaitable, Callable

from app.api.reply import Reply
from app.core.fleet.exchange import Header
from app.runtime.tasks import Tasks

COMMENT = b": keep-alive\n"

HEAD: tuple[Header, ...] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
)
"""Of an answer that is begun in place of a worker."""


class KeepAlive:
    """Comments in `reply`, one each `interval_s`, from `start` to `stop`. begin: begins the reply where nobody has."""

    __slots__ = ("_begin", "_interval_s", "_reply", "_running", "_tasks")

    def __init__(self, tasks: Tasks, interval_s: float, reply: Reply, begin: Callable[[], Awaitable[None]]) -> None:
        self._tasks = tasks
        self._interval_s = interval_s
        self._reply = reply
        self._begin = begin
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        """The first comment comes after an interval."""
        self._running = self._tasks.start(self._run(), "keep-alive")

    def stop(self) -> None:
        """Nothing is sent from here on."""
        if self._running is not None:
            self._running.cancel()
            self._running = None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            if not self._reply.is_started:
                await self._begin()
            await self._reply.pass_on(COMMENT)
