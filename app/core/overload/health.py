"""Health of one worker from probes, with hysteresis.

    UNKNOWN --1 success--> HEALTHY --3 failures in a row--> UNHEALTHY --2 successes in a row--> HEALTHY

UNKNOWN is not healthy, not unhealthy: such a worker takes requests only once its models are known, and it stays UNKNOWN
until the first success or until enough failures.
"""

from dataclasses import dataclass
from enum import StrEnum


class Health(StrEnum):
    UNKNOWN = "unknown"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


@dataclass(frozen=True, slots=True)
class HealthThresholds:
    """failures, successes: how many in a row change the state (3 and 2, as in Kubernetes and the peers)."""

    failures: int = 3
    successes: int = 2


class HealthTracker:
    """Counts probes of one incarnation. Every method returns whether `state` changed.

    was_healthy: whether it ever was. can_connect: False when the probes that made it unhealthy met nobody.
    """

    __slots__ = ("_failures", "_is_reachable", "_successes", "_thresholds", "state", "was_healthy")

    def __init__(self, thresholds: HealthThresholds) -> None:
        self._thresholds = thresholds
        self._failures = 0
        self._successes = 0
        self._is_reachable = True
        self.was_healthy = False
        self.state = Health.UNKNOWN

    @property
    def can_connect(self) -> bool:
        return self.state is not Health.UNHEALTHY or self._is_reachable

    def probe_succeeded(self) -> bool:
        self._failures = 0
        self._successes += 1
        self._is_reachable = True
        if self.state is Health.UNKNOWN or self._successes >= self._thresholds.successes:
            self.was_healthy = True
            return self._move(Health.HEALTHY)
        return False

    def probe_failed(self, *, reachable: bool) -> bool:
        could_connect = self.can_connect
        self._successes = 0
        self._failures += 1
        self._is_reachable = reachable
        moved = self._failures >= self._thresholds.failures and self._move(Health.UNHEALTHY)
        return moved or self.can_connect is not could_connect

    def _move(self, state: Health) -> bool:
        changed = state is not self.state
        self.state = state
        return changed
