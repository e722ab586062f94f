"""Every order of events there can be, over the real mark sheets, in small named worlds.

One worker, routers that each hold a sheet of it, and one monitor that samples it once a tick. Between two ticks
anything that is possible may happen in any order: a request at a router, a sample or another router's mark arriving (in
order, out of it, twice), the worker turning busy or calm, a restart. What is bounded is what the design promises to
bound: a sample or a mark is on its way for at most one tick, so at most SAMPLES_IN_FLIGHT of them are when evidence
comes.

Checked in every state that can be reached:
    S1  a sample taken before the evidence for a mark never ends that mark
    S2  what is told of a process that is gone changes nothing of the one that came after it
    L1  a worker that has been calm for long enough takes requests again, whoever asks for it or not
    L2  the same without any observation, once the lease is over
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from app.core.fleet.reasons import MarkKind
from app.core.overload.marks import SAMPLES_IN_FLIGHT, Mark, MarkSheet, State

RECOVERY_TICKS = SAMPLES_IN_FLIGHT + 3
"""The sample that is certainly newer: one to be on its way, one to be sent, one to arrive; and one for a late mark."""


@dataclass(frozen=True)
class Rules:
    """The world's size. lease: ticks of a mark. turns: how often the worker turns busy or calm."""

    name: str
    routers: int = 1
    ticks: int = 7
    lease: float = 6.0
    turns: int = 2
    requests: int = 3
    is_silent: bool = False
    on_change_only: bool = False
    restarts: int = 0
    may_reorder: bool = False
    may_repeat: bool = False
    shares_count: bool = True


class Sample(NamedTuple):
    seq: int
    is_healthy: bool
    incarnation: int


class Told(NamedTuple):
    mark: Mark
    incarnation: int


class Evidence(NamedTuple):
    """A rejection: which mark it made, and how many samples had been taken by then."""

    router: int
    number: int
    taken: int


@dataclass(frozen=True)
class World:
    sheets: tuple[Any, ...]
    now: int = 0
    is_busy: bool = False
    incarnation: int = 0
    seen_incarnation: int = 0
    turns: int = 0
    restarts: int = 0
    requests: int = 0
    taken: int = 0
    """Samples of this incarnation."""
    said: bool | None = None
    samples: tuple[tuple[Sample, ...], ...] = ()
    marks: tuple[tuple[Told, ...], ...] = ()
    evidence: tuple[Evidence, ...] = ()
    calm_since: int = 0
    last_until: float = 0.0


class Broken(AssertionError):
    """An invariant does not hold; says which, and how the world came there."""


class Explorer:
    """fresh: a sheet of a new worker; mutants are given here."""

    def __init__(self, rules: Rules, fresh: Callable[[], Any] = MarkSheet, *, is_fenced: bool = True) -> None:
        self._rules = rules
        self._fresh = fresh
        self._is_fenced = is_fenced

    def run(self) -> int:
        """The number of states; raises Broken."""
        rules = self._rules
        start = World(
            tuple(self._fresh() for _ in range(rules.routers)),
            samples=((),) * rules.routers,
            marks=((),) * rules.routers,
        )
        came_from: dict[World, tuple[World, str] | None] = {start: None}
        todo = [start]
        while todo:
            world = todo.pop()
            for name, following in self._steps(world):
                if following not in came_from:
                    came_from[following] = world, name
                    self._check(following, came_from)
                    todo.append(following)
        return len(came_from)

    def _steps(self, world: World) -> Iterator[tuple[str, World]]:
        rules = self._rules
        if world.now < rules.ticks:
            yield "tick", self._tick(world)
        if world.turns < rules.turns:
            busy = not world.is_busy
            calm_since = world.calm_since if busy else world.now
            yield f"busy={busy}", replace(world, is_busy=busy, turns=world.turns + 1, calm_since=calm_since)
        if world.restarts < rules.restarts:
            yield (
                "restart",
                replace(
                    world,
                    incarnation=world.incarnation + 1,
                    restarts=world.restarts + 1,
                    is_busy=False,
                    calm_since=world.now,
                    taken=0,
                ),
            )
        for router in range(rules.routers):
            if world.requests < rules.requests:
                yield from self._request(world, router)
            for place in range(len(world.samples[router]) if rules.may_reorder else min(1, len(world.samples[router]))):
                sample = world.samples[router][place]
                yield f"sample {sample.seq} at {router}", self._deliver_sample(world, router, place)
                if rules.may_repeat:
                    yield f"sample {sample.seq} at {router}, again to come", self._take_sample(world, router, sample)
            for place in range(len(world.marks[router])):
                yield f"mark at {router}", self._deliver_mark(world, router, place)

    def _tick(self, world: World) -> World:
        """Time passes: what has been on its way for a tick arrives, and the next sample is sent."""
        rules = self._rules
        for router in range(rules.routers):
            while world.marks[router]:
                world = self._deliver_mark(world, router, 0)
            while len(world.samples[router]) >= 1:
                world = self._deliver_sample(world, router, 0)
        world = replace(world, now=world.now + 1)
        is_healthy = not world.is_busy
        if rules.is_silent or (rules.on_change_only and world.said == is_healthy):
            return world
        taken = world.taken + 1
        sample = Sample(taken, is_healthy, world.incarnation)
        return replace(world, taken=taken, said=is_healthy, samples=tuple((*queue, sample) for queue in world.samples))

    def _request(self, world: World, router: int) -> Iterator[tuple[str, World]]:
        sheet, now = world.sheets[router], float(world.now)
        state = sheet.state(now)
        if state is State.MARKED or (state is State.TRIAL and not sheet.has_token(now)):
            return
        if not world.is_busy:
            if state is State.TRIAL:
                passed = sheet.trial_began(now).trial_passed(now)
                yield (
                    f"trial passes at {router}",
                    self._put(replace(world, requests=world.requests + 1), router, passed),
                )
            return
        number = world.requests + 1
        marked = sheet.trial_returned().marked(MarkKind.OVERLOAD, now, number=number, retry_after_s=self._rules.lease)
        own = next(mark for mark in marked.marks if mark.reporter == "" and mark.number == number)
        world = self._put(world, router, marked)
        after_seq = own.after_seq if self._rules.shares_count else -1
        told = Told(replace(own, reporter=str(router), after_seq=after_seq), world.seen_incarnation)
        queues = tuple(queue if other == router else (*queue, told) for other, queue in enumerate(world.marks))
        yield (
            f"rejected at {router}",
            replace(
                world,
                requests=number,
                marks=queues,
                evidence=(*world.evidence, Evidence(router, number, world.taken)),
                last_until=max(world.last_until, own.until),
            ),
        )

    def _deliver_sample(self, world: World, router: int, place: int) -> World:
        queue = world.samples[router]
        left = (*queue[:place], *queue[place + 1 :])
        queues = tuple(left if other == router else each for other, each in enumerate(world.samples))
        return self._take_sample(replace(world, samples=queues), router, queue[place])

    def _take_sample(self, world: World, router: int, sample: Sample) -> World:
        if sample.incarnation > world.seen_incarnation:
            # All routers learn of the restart together: what they held against the old process is gone.
            fresh = tuple(self._fresh() for _ in world.sheets)
            world = replace(world, sheets=fresh, seen_incarnation=sample.incarnation, evidence=(), last_until=0.0)
        elif sample.incarnation < world.seen_incarnation and self._is_fenced:
            return world
        sheet = world.sheets[router].observed(sample.seq, float(world.now), is_healthy=sample.is_healthy)
        return self._put(world, router, sheet)

    def _deliver_mark(self, world: World, router: int, place: int) -> World:
        queue = world.marks[router]
        told, left = queue[place], (*queue[:place], *queue[place + 1 :])
        queues = tuple(left if other == router else each for other, each in enumerate(world.marks))
        world = replace(world, marks=queues)
        if told.incarnation < world.seen_incarnation and self._is_fenced:
            return world
        sheet = world.sheets[router]
        mark = told.mark if told.mark.after_seq >= 0 else replace(told.mark, after_seq=sheet.seq)
        return self._put(world, router, sheet.told(mark, float(world.now)))

    def _put(self, world: World, router: int, sheet: Any) -> World:
        return replace(
            world, sheets=tuple(sheet if other == router else each for other, each in enumerate(world.sheets))
        )

    # What must hold

    def _check(self, world: World, came_from: dict[World, tuple[World, str] | None]) -> None:
        now = float(world.now)
        for router, sheet in enumerate(world.sheets):
            is_marked = sheet.state(now) is State.MARKED
            self._require("S1", not self._ended_too_early(world, router, sheet), world, came_from)
            if self._rules.restarts and world.incarnation == world.seen_incarnation and not world.evidence:
                self._require("S2", not is_marked, world, came_from)
            if not world.is_busy and not self._rules.is_silent:
                recovered = world.now - world.calm_since < RECOVERY_TICKS or not is_marked
                self._require("L1", recovered, world, came_from)
            self._require("L2", not is_marked or now < world.last_until, world, came_from)

    def _ended_too_early(self, world: World, router: int, sheet: Any) -> bool:
        """Whether a mark that this router made holds no more although its lease runs and nothing newer was seen."""
        now = float(world.now)
        for evidence in world.evidence:
            mark = next(
                (
                    each
                    for each in getattr(sheet, "marks", ())
                    if each.reporter == "" and each.number == evidence.number
                ),
                None,
            )
            if evidence.router == router and mark is not None and mark.until > now:
                is_newer = max(sheet.seq, 0) > evidence.taken
                if sheet.state(now) is not State.MARKED and not is_newer:
                    return True
        return False

    def _require(
        self, invariant: str, holds: bool, world: World, came_from: dict[World, tuple[World, str] | None]
    ) -> None:
        if holds:
            return
        steps: list[str] = []
        origin = came_from[world]
        while origin is not None:
            world, name = origin
            steps.append(name)
            origin = came_from[world]
        raise Broken(f"{invariant} ({self._rules.name}): {', '.join(reversed(steps))}")
