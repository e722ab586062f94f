"""When failures are enough for a mark.

Five in a row, or fewer than four of five good among the last half minute's, where those are at least ten (Finagle's
rule; its success rate sees a worker that fails each second request, its count one that fails all of few). Counts are
kept in two halves of the window, of which the older is dropped when the newer is full: nothing is stored per request.
"""

from app.core.overload.marks import NEVER

IN_A_ROW = 5.0
WINDOW_S = 30.0
LEAST_RATE = 0.8
LEAST_COUNT = 10.0

CONNECT_ERRORS = 2
"""In a row, with nothing answered between them."""


class Accrual:
    """Of one incarnation of a worker, in one router. Methods return whether there is enough for a mark now."""

    __slots__ = ("_connect_errors", "_failed", "_good", "_half_from", "_in_a_row", "_older")

    def __init__(self) -> None:
        self._connect_errors = 0
        self._in_a_row = 0.0
        self._good = 0.0
        self._failed = 0.0
        self._older = (0.0, 0.0)
        self._half_from = NEVER

    def succeeded(self, now: float) -> None:
        self._connect_errors = 0
        self._in_a_row = 0.0
        self._turn(now)
        self._good += 1

    def failed(self, now: float, weight: float = 1.0) -> bool:
        """weight: how much of a failure it was, 0..1."""
        self._connect_errors = 0
        self._in_a_row += weight
        self._turn(now)
        self._failed += weight
        failed = self._failed + self._older[1]
        total = failed + self._good + self._older[0]
        is_enough = self._in_a_row >= IN_A_ROW or (total >= LEAST_COUNT and total - failed < LEAST_RATE * total)
        if is_enough:
            self._begin_anew()
        return is_enough

    def connect_failed(self) -> bool:
        self._connect_errors += 1
        return self._connect_errors >= CONNECT_ERRORS

    def probe_failed(self, *, reachable: bool) -> bool:
        """A probe that cannot connect either confirms one connect error."""
        return not reachable and self._connect_errors > 0

    def probe_succeeded(self) -> None:
        self._connect_errors = 0

    def _begin_anew(self) -> None:
        """After a mark only what comes then counts."""
        self._in_a_row = self._good = self._failed = 0.0
        self._older = (0.0, 0.0)

    def _turn(self, now: float) -> None:
        age_s = now - self._half_from
        if age_s < WINDOW_S / 2:
            return
        self._older = (self._good, self._failed) if age_s < WINDOW_S else (0.0, 0.0)
        self._good = self._failed = 0.0
        self._half_from = now
