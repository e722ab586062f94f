"""Health of one worker from probes and connect errors, with hysteresis.

    UNKNOWN --1 success--> HEALTHY --3 failures in a row--> UNHEALTHY --2 successes in a row--> HEALTHY

A connect error on the request path is stronger evidence than a failed probe: the next evidence of the same kind, be it
a second connect error or a probe that cannot connect either, makes the worker UNHEALTHY at once.
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
    """Counts evidence of one incarnation. Every method returns whether `state` changed."""

    __slots__ = ("_connect_errors", "_failures", "_successes", "_thresholds", "state")

    def __init__(self, thresholds: HealthThresholds) -> None:
        self._thresholds = thresholds
        self._failures = 0
        self._successes = 0
        self._connect_errors = 0
        self.state = Health.UNKNOWN

    def probe_succeeded(self) -> bool:
        self._failures = 0
        self._connect_errors = 0
        self._successes += 1
        if self.state is Health.UNKNOWN or self._successes >= self._thresholds.successes:
            return self._move(Health.HEALTHY)
        return False

    def probe_failed(self, *, reachable: bool) -> bool:
        self._successes = 0
        self._failures += 1
        confirmed = not reachable and self._connect_errors > 0
        if confirmed or self._failures >= self._thresholds.failures:
            return self._move(Health.UNHEALTHY)
        return False

    def connect_failed(self) -> bool:
        self._successes = 0
        self._connect_errors += 1
        if self._connect_errors >= 2:
            return self._move(Health.UNHEALTHY)
        return False

    def answered(self) -> None:
        """The worker answered a request. Says nothing of `/health`, but the network path is there."""
        self._connect_errors = 0

    def _move(self, state: Health) -> bool:
        changed = state is not self.state
        self.state = state
        return changed
