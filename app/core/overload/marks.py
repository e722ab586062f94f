"""Marks against one worker, and how it comes back from them. Pure: every change makes a new value.

                   evidence                        lease over, or a newer healthy observation
      CLEAR ───────────────────────▶ MARKED ───────────────────────────────────────▶ TRIAL
        ▲                              ▲   the trial failed: one strike, twice the lease │ one request at a time
        └──────────── RAMP ◀───────────┴─────────────────────────────────────────────────┘ it passed

No mark needs anybody to take it back: each ends by itself, at the latest after the longest lease of its kind. What an
observation ends early is decided by order, never by clocks: each observation of a worker has a number, a mark remembers
the highest that its maker had seen, and only one that must have been made after the evidence supersedes the mark.

Source: the field's own reports (a set that is published on change only, a flag that an idle worker never raises, an old
sample that erases a newer mark: each leaves workers out for ever or lets them back in at once), Finagle's single probe
that an ignorable result must give back, Envoy's growing ejections, gRPC's decaying multiplier.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from app.core.fleet.reasons import MarkKind


class State(StrEnum):
    """Derived from marks and time; nobody sets it."""

    CLEAR = "clear"
    MARKED = "marked"
    TRIAL = "trial"
    RAMP = "ramp"


class Lease(NamedTuple):
    """Seconds: of a first mark, and the most that strikes make of it."""

    first_s: float
    longest_s: float


LEASES: dict[MarkKind, Lease] = {
    MarkKind.OVERLOAD: Lease(1.0, 30.0),
    MarkKind.FAILING: Lease(5.0, 300.0),
    MarkKind.UNREACHABLE: Lease(2.0, 60.0),
}

JITTER = 0.2
"""Share by which a lease varies, so that many routers do not come back to a worker in the same moment."""

SAMPLES_IN_FLIGHT = 1
"""Observations that may be on their way while evidence arrives: taken before it, seen after it."""

TRIAL_LEASE_S = 30.0
"""A trial whose end nobody reports is over after this."""

IDLE_TRIAL_S = 5.0
"""Without requests to try it with, a worker is taken back after this long in trial, by a healthy observation."""

RAMP_S = 30.0
RAMP_FROM = 0.1
"""Slow start: the share of its requests that a worker gets at first, and the time until it gets all of them."""

STRIKE_HALF_LIFE_S = 60.0

MAX_STRIKES = 16
NEVER = float("-inf")
FOR_EVER = float("inf")


@dataclass(frozen=True, slots=True)
class Mark:
    """One reporter's word against a worker.

    reporter: "" for this router itself. number: tells two marks of one reporter and kind apart; a later one is higher.
    after_seq: the highest observation that its maker had seen when the evidence came. until: monotonic seconds.
    """

    reporter: str
    kind: MarkKind
    number: int
    after_seq: int
    until: float


class Strikes(NamedTuple):
    """Offences of one kind in a row. since: from when on they fade, monotonic seconds."""

    number: int = 0
    since: float = NEVER

    def at(self, now: float) -> int:
        """Halved for each minute without a mark."""
        halvings = int(max(0.0, now - self.since) // STRIKE_HALF_LIFE_S) if self.number else 0
        return self.number >> min(halvings, MAX_STRIKES)


NO_STRIKES = (Strikes(),) * len(MarkKind)
PLACE = {kind: place for place, kind in enumerate(MarkKind)}


@dataclass(frozen=True, slots=True)
class MarkSheet:
    """What one router holds against one incarnation of a worker.

    seq, healthy_seq: the highest observation seen, and the highest healthy one. marks: at most one of each reporter
    and kind; some may be over. strikes: by kind. on_trial: marked for since a trial passed. marked_from: when the first
    of that was. trial_from: when
    the trial could begin. token_until: until when the one trial at a time is taken. ramp_from: when it came back.
    """

    seq: int = 0
    healthy_seq: int = 0
    marks: tuple[Mark, ...] = ()
    strikes: tuple[Strikes, ...] = NO_STRIKES
    on_trial: frozenset[MarkKind] = frozenset()
    marked_from: float = FOR_EVER
    trial_from: float = NEVER
    token_until: float = NEVER
    ramp_from: float = NEVER

    # What it says

    def state(self, now: float) -> State:
        if self.until(now) > now:
            return State.MARKED
        if self.on_trial:
            return State.TRIAL
        return State.RAMP if now < self.ramp_from + RAMP_S else State.CLEAR

    def kinds(self, now: float) -> frozenset[MarkKind]:
        """For what it is marked now."""
        return frozenset(mark.kind for mark in self._holding(now))

    def until(self, now: float) -> float:
        """When the last of the marks that hold now ends, NEVER when none does."""
        return max((mark.until for mark in self._holding(now)), default=NEVER)

    def changes_at(self, now: float) -> float:
        """When the state may be another one although nothing happens; FOR_EVER when it will not."""
        # Not the last of them: one that holds only together with another reporter's ends with that.
        if ends := [mark.until for mark in self._holding(now)]:
            return min(ends)
        return self.ramp_from + RAMP_S if now < self.ramp_from + RAMP_S else FOR_EVER

    def has_token(self, now: float) -> bool:
        """Whether nobody tries it now; of use in state TRIAL."""
        return self.token_until <= now

    def weight(self, now: float) -> float:
        """The share of its requests that a worker in slow start gets, 0..1."""
        return min(1.0, max(RAMP_FROM, (now - self.ramp_from) / RAMP_S))

    # What changes it

    def marked(
        self, kind: MarkKind, now: float, *, number: int, jitter: float = 1.0, retry_after_s: float | None = None
    ) -> "MarkSheet":
        """This router has evidence. number: higher than of any mark before. jitter: a factor of the lease, 1 ± JITTER.

        Evidence while the mark holds comes from what was sent before it: it may lengthen the lease, and is no strike.
        """
        present = next((mark for mark in self._holding(now) if mark.reporter == "" and mark.kind is kind), None)
        place, lease = PLACE[kind], LEASES[kind]
        count = self.strikes[place].number if present is not None else self.strikes[place].at(now) + 1
        count = min(count, MAX_STRIKES)
        asked_s = retry_after_s if retry_after_s is not None else lease.first_s * 2.0 ** (count - 1)
        until = now + min(max(asked_s, lease.first_s), lease.longest_s) * jitter
        if present is not None:
            until = max(until, present.until)
        strikes = (*self.strikes[:place], Strikes(count, until), *self.strikes[place + 1 :])
        return replace(self, strikes=strikes)._with(Mark("", kind, number, self.seq, until), now)

    def told(self, mark: Mark, now: float) -> "MarkSheet":
        """Another router's mark. Its after_seq is on our count of observations, or where that is not known our highest.

        A join: the order in which word arrives makes no difference, nor how many times it does.
        """
        before = next((other for other in self.marks if _name(other) == _name(mark)), None)
        if mark.until <= now or (before is not None and (mark.number, mark.until) <= (before.number, before.until)):
            return self
        if before is not None and before.number == mark.number:
            mark = replace(mark, after_seq=before.after_seq)
        return self._with(mark, now)

    def observed(self, seq: int, now: float, *, is_healthy: bool) -> "MarkSheet":
        """An observation: it supersedes the marks that it is certainly newer than."""
        if seq <= self.seq:
            return self
        if not is_healthy:
            return replace(self, seq=seq)
        before, after = self.state(now), replace(self, seq=seq, healthy_seq=seq)
        if before is State.TRIAL and self.has_token(now) and now >= self.trial_from + IDLE_TRIAL_S:
            return after._back(now)
        if before is State.MARKED and after.state(now) is State.TRIAL:
            return replace(after, trial_from=now)
        return after

    def trial_began(self, now: float) -> "MarkSheet":
        return replace(self, token_until=now + TRIAL_LEASE_S)

    def trial_passed(self, now: float) -> "MarkSheet":
        """The first byte of a good answer came. A mark that was made meanwhile holds all the same."""
        return self._back(now) if self.state(now) is State.TRIAL else self.trial_returned()

    def trial_returned(self) -> "MarkSheet":
        """The trial is over and said nothing good: who may try is whom the next request finds so."""
        return replace(self, token_until=NEVER)

    def started(self, now: float) -> "MarkSheet":
        """The worker is new, or was away: slow start."""
        return replace(self, ramp_from=now)

    def _back(self, now: float) -> "MarkSheet":
        return replace(
            self, on_trial=frozenset(), marked_from=FOR_EVER, trial_from=NEVER, token_until=NEVER, ramp_from=now
        )

    def _with(self, mark: Mark, now: float) -> "MarkSheet":
        marks = tuple(other for other in self.marks if other.until > now and _name(other) != _name(mark))
        after = replace(self, marks=(*marks, mark))
        honoured = _honoured(after.marks)
        if mark not in honoured:
            return after
        kinds = self.on_trial.union(other.kind for other in honoured)
        until = max(other.until for other in honoured)
        return replace(after, on_trial=kinds, marked_from=min(now, self.marked_from), trial_from=until)

    def _holding(self, now: float) -> list[Mark]:
        if not self.marks:
            return []
        return _honoured(mark for mark in self.marks if mark.until > now and not self._supersedes(mark))

    def _supersedes(self, mark: Mark) -> bool:
        """That of failing requests ends by its lease alone: a worker that fails them may well call itself healthy."""
        return mark.kind is not MarkKind.FAILING and self.healthy_seq > mark.after_seq + SAMPLES_IN_FLIGHT


def _name(mark: Mark) -> tuple[str, MarkKind]:
    return mark.reporter, mark.kind


def _honoured(marks: Iterable[Mark]) -> list[Mark]:
    """Our own, and others' for overload; of what may be their own trouble with the network, what two agree on."""
    given = list(marks)
    return [
        mark
        for mark in given
        if mark.reporter == ""
        or mark.kind is MarkKind.OVERLOAD
        or any(other.kind is mark.kind and other.reporter != mark.reporter for other in given)
    ]
