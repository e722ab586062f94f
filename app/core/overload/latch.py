"""Overload as the engine's own numbers show it: one latch per signal, each with its own expiry.

A signal trips its latch at a high mark and frees it only at a low one, seen twice, so that a worker at the edge does
not flap. A signal that stops arriving is unknown after SAMPLE_FRESH_S: it can then neither trip nor hold, whatever the
others do (Dynamo's decode latch stayed on for ever when one of its two signals fell silent).
"""

from dataclasses import dataclass

from app.core.fleet.load import SAMPLE_FRESH_S, LoadSample

CALM_SAMPLES = 2
KV_GAP = 0.1


@dataclass(frozen=True, slots=True)
class Thresholds:
    """waiting: requests in the engine's queue. kv_usage: share of KV blocks in use, 0..1. 0 switches a signal off. The
    latch is free again at half the queue, and a tenth of all blocks below kv_usage.

    KV blocks in use are those of running requests, cached ones are not: at 0.95 an engine is about to preempt.
    """

    waiting: int = 64
    kv_usage: float = 0.95


class Latch:
    """Of one signal."""

    __slots__ = ("_calm", "_is_on", "_seen_at", "_trip", "low")

    def __init__(self, trip: float, low: float) -> None:
        self._trip = trip
        self.low = low
        self._is_on = False
        self._calm = 0
        self._seen_at = float("-inf")

    def sample(self, value: float, at: float) -> None:
        if at - self._seen_at > SAMPLE_FRESH_S:
            self._is_on = False  # what held it is not known to hold any more
        self._seen_at = at
        self._calm = self._calm + 1 if value <= self.low else 0
        if value >= self._trip:
            self._is_on = True
        elif self._calm >= CALM_SAMPLES:
            self._is_on = False

    def holds(self, now: float) -> bool:
        return self._is_on and now - self._seen_at <= SAMPLE_FRESH_S

    @property
    def frees_at(self) -> float:
        """When it lets go if nothing comes any more."""
        return self._seen_at + SAMPLE_FRESH_S if self._is_on else float("inf")


class OverloadLatch:
    """What one incarnation of a worker says of its load, as one yes or no."""

    __slots__ = ("_kv", "_waiting")

    def __init__(self, thresholds: Thresholds) -> None:
        self._waiting = _latch(thresholds.waiting, thresholds.waiting // 2)
        self._kv = _latch(thresholds.kv_usage, thresholds.kv_usage - KV_GAP)

    def sample(self, sample: LoadSample) -> bool:
        """Take a sample in; whether the engine is calm by it: no signal stands above its low mark."""
        self._waiting.sample(sample.waiting, sample.taken_at)
        is_calm = sample.waiting <= self._waiting.low
        if sample.kv_usage is not None:
            self._kv.sample(sample.kv_usage, sample.taken_at)
            is_calm = is_calm and sample.kv_usage <= self._kv.low
        return is_calm

    def holds(self, now: float) -> bool:
        return self._waiting.holds(now) or self._kv.holds(now)

    def frees_at(self, now: float) -> float:
        """When it lets go if nothing comes any more; inf when it does not hold."""
        held = [latch.frees_at for latch in (self._waiting, self._kv) if latch.holds(now)]
        return max(held, default=float("inf"))


def _latch(trip: float, low: float) -> Latch:
    return Latch(trip, low) if trip else Latch(float("inf"), float("inf"))
