"""The gateway's own overload: what it looks at, from when on it refuses requests, and which.

A machine of its own, apart from that of workers: a process that cannot keep up harms every stream that it carries, and
the cheapest answer is one that is given before anything of a request is read. It never refuses everybody: what nobody
is sent nobody can be seen to manage, and a rejection that is total keeps itself up (Envoy and Finagle stop at 80 and
75 %).
"""

from enum import IntEnum
from typing import NamedTuple

from app.core.fleet.priority import Priority

CALM_S = 2.0
"""For how long all must be below the marks of a level before it ends."""

SHED_SHARE = 0.8
"""Of the requests that are neither low nor critical, refused at the highest level."""


class Level(IntEnum):
    CALM = 0
    GUARDED = 1
    """Requests of priority low are refused."""
    SHEDDING = 2
    """Most are refused, but critical ones."""


class Marks(NamedTuple):
    """Of one signal: from where on each level begins."""

    guarded: float
    shedding: float

    def level(self, value: float) -> Level:
        if value >= self.shedding:
            return Level.SHEDDING
        return Level.GUARDED if value >= self.guarded else Level.CALM


LAG_S = Marks(0.25, 1.0)
"""How late the event loop is: each event of each stream waits as long."""

MEMORY = Marks(0.85, 0.95)
"""Share of the memory that the process may have."""

BODIES = Marks(0.5, 0.9)
"""Share of the bytes of bodies that it may hold; at all of them every body is refused anyway."""


class Pressure:
    """Of one process."""

    __slots__ = ("_levels", "_loud_at", "level")

    def __init__(self) -> None:
        self.level = Level.CALM
        self._levels: dict[str, Level] = {}
        self._loud_at = {Level.GUARDED: float("-inf"), Level.SHEDDING: float("-inf")}

    def saw(self, signal: str, value: float, marks: Marks, now: float) -> bool:
        """Take a reading in; whether the level is another one now. It rises at once, and falls after CALM_S."""
        self._levels[signal] = marks.level(value)
        loudest = max(self._levels.values())
        for level in self._loud_at:
            if loudest >= level:
                self._loud_at[level] = now
        before = self.level
        held = [level for level, at in self._loud_at.items() if now - at < CALM_S]
        self.level = max(held, default=Level.CALM)
        return self.level is not before

    def refuses(self, priority: Priority, draw: float) -> bool:
        """Whether a request is to be refused. draw: a number from 0 to 1, by chance."""
        if self.level is Level.CALM or priority is Priority.CRITICAL:
            return False
        if priority is Priority.LOW:
            return True
        return self.level is Level.SHEDDING and draw < SHED_SHARE

    @property
    def loudest(self) -> list[str]:
        """The signals that stand highest."""
        top = max(self._levels.values(), default=Level.CALM)
        return sorted(signal for signal, level in self._levels.items() if level is top) if top else []
