"""What processes were recently asked for, of each limited scope.

A row is [requests, tokens, held, wanted, held bytes, wanted bytes]. The first two decay and have no unit of their own:
only their proportions count. The others are of now: requests under way, and how many there would be if none had been
refused.
"""

from collections.abc import Mapping, Sequence
from math import log

REQUESTS, TOKENS, HELD, WANTED, HELD_BYTES, WANTED_BYTES = range(6)
NOTHING = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
HALF_LIFE_S = 5.0
"""Long enough that a client which asks every few seconds keeps its share, short enough to follow one that moved."""
NEGLIGIBLE = 0.01
MEMORY_S = HALF_LIFE_S / log(2)
"""A steady rate adds up to what it is in this time."""


class Demand:
    """Of one process. Fed with its reports."""

    def __init__(self) -> None:
        self._rows: dict[str, list[float]] = {}
        self._at = float("-inf")

    def report(self, rows: Mapping[str, Sequence[float]], now: float) -> None:
        """Take a report: requests and tokens since the one before, and the present numbers. What it leaves out is 0."""
        kept = 0.5 ** ((now - self._at) / HALF_LIFE_S) if now > self._at else 1.0
        self._at = max(self._at, now)
        faded: dict[str, list[float]] = {}
        for scope, row in self._rows.items():
            requests, tokens = row[REQUESTS] * kept, row[TOKENS] * kept
            if requests > NEGLIGIBLE or tokens > NEGLIGIBLE:
                faded[scope] = [requests, tokens, 0.0, 0.0, 0.0, 0.0]
        for scope, new in rows.items():
            old = faded.get(scope, NOTHING)
            faded[scope] = [old[REQUESTS] + new[REQUESTS], old[TOKENS] + new[TOKENS], *new[HELD:]]
        self._rows = faded

    @property
    def rows(self) -> Mapping[str, Sequence[float]]:
        """Scopes with any demand."""
        return self._rows
