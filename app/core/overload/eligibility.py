"""Facts about the workers of a pool -> which may take a request. One pure function, the same in every process.

What holds in this order:
    1. An operator's word and a pin are never overridden.
    2. Suspicion (failed requests, a `/health` that says no) may take out half of a pool at most, and nobody who is
       alone: beyond that it is more likely the suspicion that is wrong. Who was suspected first is taken back first.
    3. Who cannot be connected to is out whatever the others do; it is asked when there is nobody else at all.
    4. Workers that just said that they are overloaded are believed, all of them too: then requests are shed, but for
       the trials. Those that only look overloaded step back for others, and serve when there are none.
    5. Nothing that is unknown is held against anybody.

Source: Envoy (panic threshold, most ejected), Google's SRE book (small subset overloaded: go elsewhere; large: do not).
"""

from collections.abc import Sequence
from typing import NamedTuple

from app.core.fleet.reasons import MarkKind
from app.core.overload.health import Health
from app.core.overload.marks import FOR_EVER, MarkSheet, State

MOST_SUSPECTED = 0.5


class Member(NamedTuple):
    """What counts of one worker.

    is_willing: by operator and pin. was_healthy: whether this incarnation ever was. can_connect: by the last probes.
    sheet: what is held against it.
    is_latched: it looks overloaded by its own numbers, and latch_ends when that is known no longer.
    unwell_at: since when its `/health` says no. is_forced: an operator wants it to take requests whatever is held
    against it; what it says of itself still counts. changes_at: when what is said here may not be so any more.
    is_stuck: it has work and gets nowhere.
    """

    is_willing: bool
    health: Health
    was_healthy: bool
    can_connect: bool
    sheet: MarkSheet
    is_latched: bool = False
    latch_ends: float = FOR_EVER
    unwell_at: float = FOR_EVER
    is_forced: bool = False
    changes_at: float = FOR_EVER
    is_stuck: bool = False

    @property
    def suspected_at(self) -> float:
        """When the oldest of what stands against it came."""
        return min(self.unwell_at, self.sheet.marked_from)


class Standing(NamedTuple):
    """Places of members, in order. At most one of `eligible` and `shed` says something.

    eligible: may take any request. trials: may take one at a time, until it has shown that it can. overloaded: said so,
    and their lease runs. panic: some of the eligible are suspected, but too many are. shed: nobody is eligible, for
    overload alone. changes_at: when all this may be different although nothing happens, monotonic seconds.
    """

    eligible: tuple[int, ...]
    trials: tuple[int, ...]
    overloaded: tuple[int, ...]
    panic: bool
    shed: bool
    changes_at: float


def judge(members: Sequence[Member], now: float) -> Standing:
    good: list[int] = []
    trials: list[int] = []
    latched: list[int] = []
    overloaded: list[int] = []
    suspected: list[int] = []
    last: list[int] = []
    changes_at = FOR_EVER
    for place, member in enumerate(members):
        changes_at = min(changes_at, member.changes_at)
        if not member.is_willing:
            continue
        if member.is_forced and member.health is Health.HEALTHY and not member.is_stuck:
            good.append(place)
            continue
        sheet = member.sheet
        state = sheet.state(now)
        kinds = sheet.kinds(now) if state is State.MARKED else frozenset()
        if state is State.MARKED:
            changes_at = min(changes_at, sheet.changes_at(now))
        if member.is_latched:
            changes_at = min(changes_at, member.latch_ends)
        if not member.was_healthy or not member.can_connect or MarkKind.UNREACHABLE in kinds:
            last.append(place)
        elif member.health is not Health.HEALTHY or member.is_stuck or MarkKind.FAILING in kinds:
            suspected.append(place)
        elif state is State.MARKED:
            overloaded.append(place)
        elif state is State.TRIAL:
            trials.append(place)
        elif member.is_latched:
            latched.append(place)
        else:
            good.append(place)
    count = sum(member.is_willing for member in members)
    too_many = len(suspected) - (0 if count == 1 else max(1, int(MOST_SUSPECTED * count)))
    if too_many > 0:
        suspected.sort(key=lambda place: members[place].suspected_at)
    believed_again = suspected[: max(0, too_many)]
    eligible = good + believed_again
    panic = bool(believed_again)
    if not eligible:
        eligible = latched or [place for place in trials if MarkKind.OVERLOAD not in members[place].sheet.on_trial]
    if not eligible and suspected:
        eligible, panic = suspected, True
    shed = not eligible and bool(overloaded or trials)
    if not eligible and not shed:
        eligible, panic = last, bool(last)
    still_on_trial = tuple(place for place in trials if place not in eligible)
    return Standing(tuple(sorted(eligible)), still_on_trial, tuple(overloaded), panic, shed, changes_at)
