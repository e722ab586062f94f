"""What an operator wants of a worker, for a while."""

from dataclasses import dataclass
from enum import StrEnum

MOST_S = 30 * 24 * 3600.0
"""Longest time that an order holds: what nobody remembers must not hold for ever."""

MAX_REASON = 200
"""Characters."""


class OrderKind(StrEnum):
    CORDON = "cordon"
    """Nothing new goes there, until somebody has looked at it."""
    DRAIN = "drain"
    """Nothing new goes there, since it is about to go; what runs there may finish."""
    FORCE_IN = "force-in"
    """It takes requests whatever is held against it, as long as it is healthy: the operator knows better."""


@dataclass(frozen=True, slots=True)
class Order:
    """reason, actor: for people. until: monotonic seconds of this machine; an order that is over is none."""

    kind: OrderKind
    reason: str
    actor: str
    until: float

    def is_like(self, other: "Order | None") -> bool:
        """Whether they are one order, read at two times: its end is known to within the time that reading takes."""
        if other is None or (self.kind, self.reason, self.actor) != (other.kind, other.reason, other.actor):
            return False
        return abs(self.until - other.until) < 2.0
