"""Marks between the processes of a gateway and between gateways, without a store and without processes."""

import random
from typing import Any

from app.core.fleet.errors import StoreUnavailable
from app.core.fleet.events import HealthReported, MarkTold, WorkerSeen
from app.core.fleet.reasons import MarkKind
from app.core.fleet.registry import GatewayMarks
from app.core.journal import to_event, to_record
from app.core.overload.marks import State
from app.core.router import Router
from app.core.routing.policies import make_policy
from app.runtime.marks import SharedMarks
from app.runtime.processes import Slot
from tests.core.script import worker


class Rig:
    """A gateway's control process, with a store that others write by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.told: list[tuple[MarkTold, int | None]] = []
        self.written: list[GatewayMarks] = []
        self.others: list[GatewayMarks] = []
        self.is_up = True
        self.router = Router(make_policy("round_robin"), random.Random(0))
        for name in ("a", "b", "c"):
            self.router.handle(WorkerSeen(worker(name, "m")), self.now)
            self.router.handle(HealthReported(name, "1", healthy=True), self.now)
        self.marks = SharedMarks(self.router, self, self, "here", lambda: self.now)  # type: ignore[arg-type]

    def tell(self, message: dict[str, Any], *, besides: Slot | None = None) -> None:
        event = to_event(message["record"])
        assert isinstance(event, MarkTold)
        self.told.append((event, besides.number if besides else None))

    async def exchange_marks(self, marks: GatewayMarks, now: float) -> list[GatewayMarks]:
        if not self.is_up:
            raise StoreUnavailable("down")
        self.written.append(marks)
        return [marks, *self.others]

    def made(self, number: int = 1, until: float = 110.0, pid: int = 7, kind: MarkKind = MarkKind.OVERLOAD) -> None:
        self.marks.made(Slot(0, pid=pid), to_record(MarkTold("a", "1", "", kind, number, 3, until)))

    def other(self, number: int = 1, until: float = 110.0, kind: MarkKind = MarkKind.OVERLOAD) -> None:
        mark = MarkTold("b", "1", "there#9", kind, number, -1, until)
        self.others = [GatewayMarks("there", (mark,))]

    def states(self) -> dict[str, State]:
        return {name: state.sheet.state(self.now) for name, state in self.router.workers.items()}


async def test_a_mark_goes_to_the_siblings_at_once_and_to_others_by_the_store() -> None:
    rig = Rig()
    rig.made()
    (mark, besides), *rest = rig.told
    assert (mark.reporter, mark.after_seq, besides, rest) == ("here#7", 3, 0, []), "who made it knows it"
    assert rig.states() == {"a": State.MARKED, "b": State.RAMP, "c": State.RAMP}
    await rig.marks.sync()
    assert rig.written == [GatewayMarks("here", (mark,))]
    rig.now = 110.0
    await rig.marks.sync()
    assert rig.written[-1] == GatewayMarks("here"), "what is over is taken away"


async def test_others_marks_are_taken_in_once() -> None:
    rig = Rig()
    rig.other()
    for _ in range(3):
        await rig.marks.sync()
    assert [mark.reporter for mark, _ in rig.told] == ["there#9"]
    rig.other(until=110.2)
    await rig.marks.sync()
    assert len(rig.told) == 1, "no more than what reading takes"
    rig.other(until=119.0)
    await rig.marks.sync()
    rig.other(number=2, until=119.0)
    await rig.marks.sync()
    assert [(mark.number, mark.until) for mark, _ in rig.told] == [(1, 110.0), (1, 119.0), (2, 119.0)]
    assert rig.states()["b"] is State.MARKED


async def test_a_new_process_hears_of_all_that_hold() -> None:
    rig = Rig()
    rig.made(until=105.0)
    rig.other()
    await rig.marks.sync()
    assert [message["record"]["id"] for message in rig.marks.greeting()] == ["a", "b"]
    rig.now = 106.0
    assert [message["record"]["id"] for message in rig.marks.greeting()] == ["b"]


async def test_a_process_that_took_anothers_place_is_another_reporter() -> None:
    """Its marks are numbered from one again, and two processes that agree are two."""
    rig = Rig()
    rig.made(number=40, kind=MarkKind.FAILING)
    assert rig.states()["a"] is not State.MARKED, "one process alone may have trouble of its own"
    rig.made(number=1, pid=8, kind=MarkKind.FAILING)
    assert rig.states()["a"] is State.MARKED


async def test_a_store_that_is_away_changes_nothing() -> None:
    rig = Rig()
    rig.is_up = False
    rig.made()
    await rig.marks.sync()
    assert rig.states()["a"] is State.MARKED
    rig.is_up = True
    await rig.marks.sync()
    assert len(rig.written[-1].marks) == 1
