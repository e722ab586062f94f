"""What others shipped, with the mark sheet's interface: the explorer must find the fault of each."""

from dataclasses import dataclass, replace

from app.core.fleet.reasons import MarkKind
from app.core.overload.marks import SAMPLES_IN_FLIGHT, Mark, MarkSheet, State

FOR_EVER = float("inf")


@dataclass(frozen=True)
class SharedSet:
    """A set of overloaded workers that the request path adds to, and that the monitor replaces when its own view
    changes."""

    is_in: bool = False
    monitor_says: bool = True
    is_dirty: bool = False
    uses_dirty_flag: bool = False
    marks: tuple[Mark, ...] = ()
    seq: int = 0

    def state(self, now: float) -> State:
        return State.MARKED if self.is_in else State.CLEAR

    def has_token(self, now: float) -> bool:
        return True

    def trial_began(self, now: float) -> "SharedSet":
        return self

    def trial_passed(self, now: float) -> "SharedSet":
        return self

    def trial_returned(self) -> "SharedSet":
        return self

    def marked(self, kind: MarkKind, now: float, *, number: int, retry_after_s: float) -> "SharedSet":
        return replace(self, is_in=True, is_dirty=True, marks=(Mark("", kind, number, 0, FOR_EVER),))

    def told(self, mark: Mark, now: float) -> "SharedSet":
        return replace(self, is_in=True, is_dirty=True)

    def observed(self, seq: int, now: float, *, is_healthy: bool) -> "SharedSet":
        publishes = is_healthy is not self.monitor_says or (self.uses_dirty_flag and self.is_dirty)
        after = replace(self, monitor_says=is_healthy, seq=seq)
        return replace(after, is_in=not is_healthy, is_dirty=False) if publishes else after


class ClearOnAnyHealthy(MarkSheet):
    """Each healthy sample ends each mark, whenever it was taken."""

    __slots__ = ()

    def _supersedes(self, mark: Mark) -> bool:
        return self.healthy_seq >= mark.after_seq and self.healthy_seq > 0


class BareLease(MarkSheet):
    """Only time ends a mark."""

    __slots__ = ()

    def _supersedes(self, mark: Mark) -> bool:
        return False


class NextSample(MarkSheet):
    """The next healthy sample ends a mark, which may be one that was on its way when the evidence came."""

    __slots__ = ()

    def _supersedes(self, mark: Mark) -> bool:
        return self.healthy_seq > mark.after_seq + SAMPLES_IN_FLIGHT - 1
