"""`/status`: what an operator asks first, as one JSON document."""

from collections.abc import Callable
from typing import Any, Protocol

from app.core.router import Router
from app.runtime.fleet import Fleet
from app.runtime.processes import Processes


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
    """Reads, never changes. `clock` gives monotonic seconds; `started_at` is on it.

    What it says of workers and tenants is true of every serving process that answers in time, so that who reads that a
    worker is healthy, or that a key is there, can count on it.
    """

    def __init__(
        self,
        router: Router,
        fleet: Fleet,
        not_ready: Callable[[], str | None],
        store: StoreState,
        processes: Processes,
        tenants: Callable[[], dict[str, Any]],
        leader: Callable[[], dict[str, Any]],
        *,
        version: str,
        gateway: str,
        clock: Callable[[], float],
    ) -> None:
        self._router = router
        self._fleet = fleet
        self._not_ready = not_ready
        self._store = store
        self._processes = processes
        self._tenants = tenants
        self._leader = leader
        self._version = version
        self._gateway = gateway
        self._clock = clock
        self._started_at = clock()

    async def __call__(self) -> dict[str, Any]:
        document = self._document()
        await self._processes.settled()
        return document

    def _document(self) -> dict[str, Any]:
        problem = self._not_ready()
        store = self._store
        now = self._clock()
        self._router.judge_due(now)
        return {
            "version": self._version,
            "gateway": self._gateway,
            "uptime_s": round(now - self._started_at, 3),
            "ready": problem is None,
            "not_ready_because": problem,
            "degraded": store.state == "down",
            "policy": self._router.policy.name,
            "open_requests": self._processes.open_requests,
            "processes": [
                {
                    "pid": slot.pid,
                    "ready": slot.is_ready,
                    "uptime_s": round(now - slot.started_at, 3),
                    "silent_s": round(now - slot.heard_at, 3),
                    "restarts": max(0, slot.restarts),
                    "open_requests": slot.open_requests,
                }
                for slot in self._processes.slots
            ],
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
                    "on_trial": [state.worker.id for state in pool.trials],
                    "waiting_requests": self._processes.waiting(model),
                    "panic": pool.panic,
                    "shed": pool.shed,
                    "outside_of_pin": {
                        state.worker.id: problem
                        for state in pool.members
                        if (problem := pool.problem(state)) is not None
                    },
                }
                for model, pool in sorted(self._router.pools.items())
            },
            "leader": self._leader(),
            "tenants": self._tenants(),
            "workers": self._fleet.describe(),
            "refused_workers": self._fleet.describe_refused(),
            "other_gateways": [
                {"gateway": load.process, "in_flight": load.in_flight} for load in self._fleet.other_loads
            ],
        }
