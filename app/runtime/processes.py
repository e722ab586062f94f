"""The serving processes, as the control process sees them: started, told, listened to, replaced, ended.

Each serves the same port with a socket of its own. One that ends is replaced without a word to the others; one that has
not reported for SILENT_S is as good as ended and is killed, since the kernel goes on giving it connections.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

from app.runtime.channel import Channel, Message
from app.runtime.tasks import Tasks

log = logging.getLogger("warmset.processes")

SILENT_S = 15.0
"""Reports come every second; a loop that stands still this long serves nobody."""

WATCH_S = 1.0
"""How often silence is looked for."""

RESTART_S = (0.1, 5.0)
"""First and longest pause before a process that ended is replaced; doubled each time, forgotten after a minute."""

STABLE_S = 60.0
END_S = 5.0
"""Time for a process that was told to end at once."""

READY_POLL_S = 0.02

ANSWER_S = 1.0
"""Wait for a process's answer; one that is late is shown as it was last."""


class Child(Protocol):
    """A started process; `asyncio.subprocess.Process` is one."""

    pid: int

    async def wait(self) -> int: ...

    def kill(self) -> None: ...


Launch = Callable[[socket.socket], Awaitable[Child]]
"""Starts one serving process, which takes its end of the channel over."""


@dataclass
class Slot:
    """One place among the serving processes, and who fills it now. watched_s: time that we listened in vain."""

    number: int
    restarts: int = -1
    pid: int | None = None
    is_ready: bool = False
    started_at: float = 0.0
    heard_at: float = 0.0
    watched_s: float = 0.0
    open_requests: int = 0
    in_flight: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    families: list[Any] = field(default_factory=list)
    channel: Channel | None = None
    child: Child | None = None


class Processes:
    """Keeps `number` serving processes.

    launch: starts one. greeting: the messages that bring a new one up to date. on_probe: takes the worker whose probe a
    process asks for. on_ended: takes the last metrics of a process that ended by itself. on_usage: takes the number of
    a slot and what its process was asked for by tenants. on_mark: takes the slot and the record of a mark that its
    process made. clock: monotonic seconds.
    """

    def __init__(
        self,
        number: int,
        tasks: Tasks,
        launch: Launch,
        greeting: Callable[[], list[Message]],
        *,
        on_probe: Callable[[str], None],
        on_ended: Callable[[list[Any]], None],
        on_usage: Callable[[int, dict[str, list[float]]], None] = lambda number, usage: None,
        on_mark: Callable[[Slot, dict[str, Any]], None] = lambda slot, record: None,
        clock: Callable[[], float],
    ) -> None:
        self.slots = [Slot(place) for place in range(number)]
        self._tasks = tasks
        self._launch = launch
        self._greeting = greeting
        self._on_probe = on_probe
        self._on_ended = on_ended
        self._on_usage = on_usage
        self._on_mark = on_mark
        self._clock = clock
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._is_ending = False
        self._watched_at = float("inf")
        self._keeping: list[asyncio.Task[Any]] = []

    def start(self) -> None:
        self._keeping = [self._tasks.start(self._keep(slot), f"process {slot.number}") for slot in self.slots]
        self._watched_at = self._clock()
        self._tasks.every(WATCH_S, self._watch, "processes watch")

    async def wait_ready(self, limit_s: float) -> None:
        """Wait until every process serves. OSError when one ends before, or is not ready within `limit_s`."""
        deadline = self._clock() + limit_s
        while self.ready < len(self.slots):
            if any(slot.restarts > 0 for slot in self.slots):
                raise OSError("a serving process ended at its start; what it wrote says why")
            if self._clock() > deadline:
                raise OSError(f"a serving process was not ready within {limit_s:g} s")
            await asyncio.sleep(READY_POLL_S)

    def tell(self, message: Message, *, besides: Slot | None = None) -> None:
        """Send to every process, but to that of one slot."""
        for slot in self.slots:
            if slot.channel is not None and slot is not besides:
                slot.channel.send(message)

    def tell_one(self, number: int, message: Message) -> None:
        """Send to the process of one slot."""
        channel = self.slots[number].channel
        if channel is not None:
            channel.send(message)

    def in_flight(self, worker: str) -> int:
        """Requests on a worker, of all processes, as last reported."""
        return sum(slot.in_flight.get(worker, 0) for slot in self.slots)

    def waiting(self, model: str) -> int:
        """Requests that wait for workers of a model, of all processes, as last reported."""
        return sum(slot.waiting.get(model, 0) for slot in self.slots)

    @property
    def open_requests(self) -> int:
        return sum(slot.open_requests for slot in self.slots)

    @property
    def ready(self) -> int:
        """How many serve."""
        return sum(slot.is_ready for slot in self.slots)

    async def snapshots(self) -> list[list[Any]]:
        """The metrics of every process, new where it answers in time."""
        await self._ask("snapshot")
        return [slot.families for slot in self.slots if slot.families]

    async def settled(self) -> None:
        """Wait until every process that answers in time has taken what it was told until now."""
        await self._ask("settle")

    async def _ask(self, kind: str) -> None:
        number = next(self._numbers)
        waiting = []
        for slot in self.slots:
            if slot.channel is not None:
                future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiting[number * 1000 + slot.number] = future
                waiting.append(future)
                slot.channel.send({"kind": kind, "number": number * 1000 + slot.number})
        if waiting:
            await asyncio.wait(waiting, timeout=ANSWER_S)
        for slot in self.slots:
            self._waiting.pop(number * 1000 + slot.number, None)

    async def end(self, grace_s: float, cut_now: "asyncio.Future[None]") -> None:
        """Tell all to end; at once after `grace_s` or when `cut_now` is done; kill what is left."""
        self._is_ending = True
        self.tell({"kind": "stop"})
        ended = self._tasks.start(_all_of(self._keeping), "processes end")
        await asyncio.wait([ended, cut_now], timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            self.tell({"kind": "cut"})
            await asyncio.wait([ended], timeout=END_S)
        for slot in self.slots:
            if slot.child is not None:
                _kill(slot.child)
        await ended

    def _ends(self) -> bool:
        return self._is_ending

    # One slot

    async def _keep(self, slot: Slot) -> None:
        pause_s = RESTART_S[0]
        while not self._is_ending:
            slot.restarts += 1
            began = self._clock()
            try:
                status = await self._run(slot)
            except OSError as error:
                status = -1
                log.error("a serving process does not start: %s", error)
            families = slot.families
            _vacate(slot)
            if self._ends():
                return
            self._on_ended(families)
            log.error("a serving process ended", extra={"slot": slot.number, "status": status})
            if self._clock() - began > STABLE_S:
                pause_s = RESTART_S[0]
            await asyncio.sleep(pause_s)
            pause_s = min(RESTART_S[1], pause_s * 2)

    async def _run(self, slot: Slot) -> int:
        """One process from its start to its end; its exit status."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            try:
                child = await self._launch(theirs)
            except BaseException:
                ours.close()
                raise
        slot.child = child
        slot.pid = child.pid
        slot.started_at = slot.heard_at = self._clock()
        slot.watched_s = 0.0
        channel = Channel(lambda message: self._heard(slot, message), lambda: None)
        await channel.open(ours)
        slot.channel = channel
        for message in self._greeting():
            channel.send(message)
        try:
            return await child.wait()
        finally:
            channel.close()

    def _heard(self, slot: Slot, message: Message) -> None:
        slot.heard_at = self._clock()
        slot.watched_s = 0.0
        kind = message["kind"]
        if kind == "report":
            slot.open_requests = message["open_requests"]
            slot.in_flight = message["in_flight"]
            slot.waiting = message.get("waiting", {})
            self._on_usage(slot.number, message.get("usage", {}))
        elif kind == "ready":
            slot.is_ready = True
        elif kind == "probe":
            self._on_probe(message["worker"])
        elif kind == "mark":
            self._on_mark(slot, message["record"])
        elif kind in ("snapshot", "settle"):
            slot.families = message.get("families", slot.families)
            future = self._waiting.get(message["number"])
            if future is not None and not future.done():
                future.set_result(None)

    async def _watch(self) -> None:
        """One look for processes that are stuck.

        Time in which this process itself stood still is not theirs: what they said meanwhile may not be read yet.
        """
        now = self._clock()
        passed_s = min(max(0.0, now - self._watched_at), 2 * WATCH_S)
        self._watched_at = now
        for slot in self.slots:
            slot.watched_s += passed_s
            if slot.child is not None and slot.is_ready and slot.watched_s > SILENT_S:
                silent_s = round(now - slot.heard_at, 1)
                log.error("a serving process is stuck", extra={"slot": slot.number, "silent_s": silent_s})
                _kill(slot.child)


async def _all_of(tasks: list["asyncio.Task[Any]"]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


def _vacate(slot: Slot) -> None:
    slot.channel = slot.child = slot.pid = None
    slot.is_ready = False
    slot.open_requests = 0
    slot.in_flight = {}
    slot.waiting = {}
    slot.families = []


def _kill(child: Child) -> None:
    with suppress(ProcessLookupError):
        child.kill()
