"""`/status`: what an operator asks first, as one JSON document."""

from collections.abc import Callable
from typing import Any, Protocol

from app.core.router import Router
from app.runtime.fleet import Fleet
from app.runtime.readiness import Readiness


class StoreState(Protocol):
    """What the store says of itself. `since` is on the clock that it was given."""

    @property
    def shown_url(self) -> str: ...

    @property
    def state(self) -> str: ...

    @property
    def since(self) -> float: ...

    @property
    def last_error(self) -> str: ...


class Status:
    """Reads, never changes. `clock` gives monotonic seconds; `started_at` is on it."""

    def __init__(
        self,
        router: Router,
        fleet: Fleet,
        readiness: Readiness,
        store: StoreState,
        *,
        version: str,
        process: str,
        clock: Callable[[], float],
    ) -> None:
        self._router = router
        self._fleet = fleet
        self._readiness = readiness
        self._store = store
        self._version = version
        self._process = process
        self._clock = clock
        self._started_at = clock()

    def __call__(self) -> dict[str, Any]:
        problem = self._readiness.problem()
        store = self._store
        now = self._clock()
        return {
            "version": self._version,
            "process": self._process,
            "uptime_s": round(now - self._started_at, 3),
            "ready": problem is None,
            "not_ready_because": problem,
            "degraded": store.state == "down",
            "policy": self._router.policy.name,
            "open_requests": self._router.open_requests,
            "store": {
                "url": store.shown_url,
                "state": store.state,
                "for_s": round(now - store.since, 3),
                "last_error": store.last_error or None,
            },
            "pools": {
                model: {
                    "workers": [state.worker.id for state in pool.members],
                    "eligible": [state.worker.id for state in pool.eligible],
                    "panic": pool.panic,
                }
                for model, pool in sorted(self._router.pools.items())
            },
            "workers": self._fleet.describe(),
            "other_processes": [
                {"process": load.process, "in_flight": load.in_flight} for load in self._fleet.other_loads
            ],
        }
