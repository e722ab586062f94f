"""Whether the store is asked at all: after three failures in a row it is left alone for a while."""

import logging
from enum import StrEnum

from app.core.fleet.rng import Rng

log = logging.getLogger("warmset.store")

FAILURES_TO_OPEN = 3
OPEN_S = (1.0, 5.0)
"""Least and most seconds that it stays open, drawn anew each time: replicas must not come back all at once."""


class StoreState(StrEnum):
    """What the last calls say. UNKNOWN until the first one has ended well or three have failed."""

    UNKNOWN = "unknown"
    UP = "up"
    DOWN = "down"


class Breaker:
    """Counts failures in a row. Open, it refuses at once; then one call is let through to try, and decides.

    state, since: what it is and the `now` of the change. last_error: text of the last failure, "" while there was none;
    it stays after recovery. Every transition is one log line.
    """

    def __init__(self, rng: Rng, now: float) -> None:
        self._rng = rng
        self._failures = 0
        self._open_until = float("-inf")
        self._trial = False
        self.state = StoreState.UNKNOWN
        self.since = now
        self.last_error = ""

    def admits(self, now: float) -> bool:
        """Whether a call may go out at `now`. One that was admitted must be reported by succeeded() or failed()."""
        if self.state is not StoreState.DOWN:
            return True
        if now < self._open_until or self._trial:
            return False
        self._trial = True
        return True

    def succeeded(self, now: float) -> None:
        self._failures = 0
        self._trial = False
        if self.state is not StoreState.UP:
            self._move(StoreState.UP, now)

    def failed(self, error: str, now: float) -> None:
        self._failures += 1
        self._trial = False
        self.last_error = error
        if self._failures >= FAILURES_TO_OPEN:
            least, most = OPEN_S
            self._open_until = now + least + (most - least) * self._rng.random()
            if self.state is not StoreState.DOWN:
                self._move(StoreState.DOWN, now)

    def _move(self, state: StoreState, now: float) -> None:
        seconds = now - self.since
        self.state, self.since = state, now
        if state is StoreState.DOWN:
            log.warning("store is down: %s", self.last_error, extra={"after_s": round(seconds, 3)})
        else:
            log.info("store is up", extra={"after_s": round(seconds, 3)})
