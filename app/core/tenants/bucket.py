"""A rate as a bucket: it fills at the rate up to a few seconds' worth, and may be taken below zero.

Taking below zero is how a cost that is known only afterwards (tokens) is charged: who overdrew waits until the debt is
filled. Over any T seconds at most `rate · T + capacity` (and the last debt) is admitted.
"""

BURST_S = 10.0
"""Capacity, in seconds of the rate. A whole minute's worth would let twice the limit through in the first minute; a
second's worth would refuse a client that sends a handful at once and then nothing."""


class Bucket:
    """rate: units per second. least: capacity at least; 1 for what is admitted in whole units."""

    __slots__ = ("_at", "_capacity", "_least", "_level", "_rate")

    def __init__(self, rate: float, now: float, *, least: float = 0.0) -> None:
        self._least = least
        self._rate = rate
        self._capacity = max(least, rate * BURST_S)
        self._level = self._capacity
        self._at = now

    def level(self, now: float) -> float:
        """What may be taken at `now`; negative when it is overdrawn."""
        if now > self._at:
            self._level = min(self._capacity, self._level + (now - self._at) * self._rate)
            self._at = now
        return self._level

    def take(self, amount: float, now: float) -> None:
        self._level = self.level(now) - amount

    def wait_s(self, needed: float, now: float) -> float:
        """Seconds until `level` is at least `needed`; infinite when it never will be."""
        missing = needed - self.level(now)
        if missing <= 0:
            return 0.0
        return missing / self._rate if self._rate > 0 else float("inf")

    def full_in_s(self, now: float) -> float:
        """Seconds until it is full."""
        return self.wait_s(self._capacity, now)

    def set_rate(self, rate: float, now: float) -> None:
        """From now on another rate. What is in it stays, as far as it fits."""
        level = self.level(now)
        self._rate = rate
        self._capacity = max(self._least, rate * BURST_S)
        self._level = min(level, self._capacity)
