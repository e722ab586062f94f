"""Watches whether this serving process can keep up, and says so once for each change."""

import logging
from collections import deque
from collections.abc import Callable
from statistics import median

from app.core.overload.pressure import BODIES, LAG_S, MEMORY, Level, Marks, Pressure

log = logging.getLogger("warmset.pressure")

LOOK_S = 0.5

READINGS = 5
"""Of which the middle one counts: a loop that stood still once is late once."""


class SelfWatch:
    """pressure: what is made of it.

    held: bytes of bodies that the process holds, of at most `most_held`. resident: its memory, None when it is not
    known, of at most `most_resident`, None for no limit. clock: monotonic seconds.
    """

    def __init__(
        self,
        pressure: Pressure,
        *,
        held: Callable[[], int],
        most_held: int,
        resident: Callable[[], int | None],
        most_resident: int | None,
        clock: Callable[[], float],
    ) -> None:
        self._pressure = pressure
        self._held = held
        self._most_held = most_held
        self._resident = resident
        self._most_resident = most_resident
        self._clock = clock
        self._lags: deque[float] = deque(maxlen=READINGS)

    def lagged(self, seconds: float) -> None:
        """The event loop was so late."""
        self._lags.append(seconds)
        self._saw("lag", median(self._lags) if len(self._lags) == READINGS else 0.0, LAG_S)

    async def look(self) -> None:
        """One turn."""
        self._saw("bodies", self._held() / self._most_held, BODIES)
        if self._most_resident is not None:
            self._saw("memory", (self._resident() or 0) / self._most_resident, MEMORY)

    def _saw(self, signal: str, value: float, marks: Marks) -> None:
        if self._pressure.saw(signal, value, marks, self._clock()):
            level = self._pressure.level
            say = log.warning if level is not Level.CALM else log.info
            say("pressure changed", extra={"level": level.name.lower(), "signals": self._pressure.loudest})
