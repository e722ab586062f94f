"""How many requests of ours a worker takes at a time, learnt from its refusals: it grows by steps and falls by shares.

A worker that refuses while it works on others of ours is full, and no offender: as soon as one of them ends there is
room again. Marking it would leave it idle before its time is over, and when all are full, all of the fleet.

Source: Netflix concurrency-limits (AIMD: grow only when the limit is used), here cut to what was under way when the
worker refused, and driven by refusals, not by latency, which for an engine is mostly the length of the answer.
"""

CUT = 0.9
FORGOTTEN_S = 60.0
"""Without a refusal for so long there is no limit any more."""

FEW = 2
"""Requests under way at least, for a refusal to be that of a full worker."""

NO_LIMIT = float("inf")


class Limit:
    """Of one router, for one incarnation of a worker. most: requests under way from which on it gets no more."""

    __slots__ = ("_refused_at", "most")

    def __init__(self) -> None:
        self.most = NO_LIMIT
        self._refused_at = float("-inf")

    def refused(self, others: int, now: float) -> bool:
        """The worker took no more while it had so many others of ours; whether that is all that it says."""
        if others < FEW:
            return False
        self.most = max(1.0, others * CUT)
        self._refused_at = now
        return True

    def accepted(self, in_flight: int, now: float) -> None:
        """It took one, and has so many now."""
        if self.most == NO_LIMIT:
            return
        if now - self._refused_at > FORGOTTEN_S:
            self.most = NO_LIMIT
        elif in_flight + 1 >= self.most:
            self.most += 1 / self.most
