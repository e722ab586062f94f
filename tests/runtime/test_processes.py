"""Which serving processes count as stuck, on a clock that the test turns."""

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.runtime import processes
from app.runtime.channel import Channel
from app.runtime.processes import SILENT_S, WATCH_S, Processes
from app.runtime.tasks import Tasks
from tests.patience import eventually, soon


class FakeChild:
    """A serving process by its two ends: what it says, and whether it was killed."""

    def __init__(self, pid: int, end: socket.socket) -> None:
        self.pid = pid
        self.killed = asyncio.Event()
        self.heard: list[dict[str, Any]] = []
        self.channel = Channel(self.heard.append, lambda: None)
        self._end = end.dup()  # the given one is closed once the process has taken it over
        self._end.setblocking(False)

    async def say(self, message: dict[str, Any]) -> None:
        if self.channel._transport is None:
            await self.channel.open(self._end)
        self.channel.send(message)

    async def wait(self) -> int:
        await self.killed.wait()
        return -9

    def kill(self) -> None:
        self.killed.set()

    def close(self) -> None:
        self.channel.close()
        self._end.close()


class Rig:
    def __init__(self, tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
        # Turns are made by hand.
        monkeypatch.setattr(tasks, "every", lambda interval_s, work, name: None)
        self.now = 0.0
        self.children: list[FakeChild] = []
        self.processes = Processes(
            2,
            tasks,
            self._launch,
            list,
            on_probe=lambda worker: None,
            on_ended=lambda families: None,
            clock=lambda: self.now,
        )

    async def _launch(self, end: socket.socket) -> FakeChild:
        self.children.append(FakeChild(1000 + len(self.children), end))
        return self.children[-1]

    async def start(self) -> None:
        """Two processes that serve."""
        self.processes.start()
        await eventually(lambda: len(self.children) == 2)
        for child in self.children:
            await child.say({"kind": "ready"})
        await eventually(lambda: self.processes.ready == 2)

    async def report(self, child: FakeChild) -> None:
        self.processes.slots[self.children.index(child)].open_requests = -1
        await child.say({"kind": "report", "open_requests": 1, "in_flight": {}})
        await eventually(lambda: self.processes.slots[self.children.index(child)].open_requests == 1)

    async def watch(self, after_s: float = WATCH_S) -> None:
        self.now += after_s
        await self.processes._watch()


@pytest.fixture
async def rig(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    tasks = Tasks()
    rig = Rig(tasks, monkeypatch)
    await rig.start()
    yield rig
    await tasks.stop()
    for child in rig.children:
        child.close()
    await asyncio.sleep(0.01)


async def test_one_that_is_silent_is_killed_and_replaced(rig: Rig) -> None:
    silent, talks = rig.children
    for _ in range(round(SILENT_S / WATCH_S)):
        await rig.report(talks)
        await rig.watch()
    assert not silent.killed.is_set()
    await rig.watch()
    assert silent.killed.is_set()
    assert not talks.killed.is_set()
    await eventually(lambda: len(rig.children) == 3)
    assert rig.processes.slots[0].restarts == 1


async def test_who_stood_still_itself_kills_nobody_for_it(rig: Rig) -> None:
    """A machine that was suspended: what the processes said since waits to be read."""
    for _ in range(5):
        await rig.watch(after_s=10 * SILENT_S)
        for child in rig.children:
            await rig.report(child)
    assert not any(child.killed.is_set() for child in rig.children)


async def test_what_was_told_is_settled_once_each_process_has_taken_it(rig: Rig) -> None:
    one, other = rig.children
    rig.processes.tell({"kind": "fact", "record": {}})
    settled = asyncio.ensure_future(rig.processes.settled())
    await eventually(lambda: len(one.heard) == len(other.heard) == 2)
    assert [message["kind"] for message in one.heard] == ["fact", "settle"]
    await one.say(one.heard[-1])
    await rig.report(one)
    assert not settled.done(), "the other has not said so"
    await other.say(other.heard[-1])
    await settled


async def test_one_that_does_not_answer_holds_nobody_up_for_ever(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "ANSWER_S", 0.01)
    await soon(rig.processes.settled())
    assert await soon(rig.processes.snapshots()) == []
