"""Which workers there are: the ones of our configuration, of the admin API and of other replicas, kept in step.

The store is where replicas meet; it is read beside the path, and when it is gone the last known fleet stays. Absence
alone never removes a worker that an operator added: only a removal does, and removals are facts of their own. So a
store that lost its data gets the registrations back from any replica that remembers them.

What the store says is not believed more than what a stranger says: a registration that leads where no worker may be is
not taken over, whoever wrote it, and it never takes the place of one that is ours.
"""

import logging
from collections.abc import Callable
from typing import Any, Literal

from app.core.fleet.address import parse_worker_url, worker_id
from app.core.fleet.engine import Engine
from app.core.fleet.errors import StoreUnavailable
from app.core.fleet.events import WorkerOrdered
from app.core.fleet.order import Order
from app.core.fleet.registry import ProcessLoad, Registration, Registry, WorkerSource
from app.core.router import Router
from app.core.routing.worker import WorkerState
from app.runtime.ports import Destinations, Monitors, Store

log = logging.getLogger("warmset.fleet")

RENEW_S = 3.0
"""How often leased registrations are written again; their lease is 15 s."""

ABSENCE_S = 15.0
"""How long a worker of another replica may be missing from the registry before it is dropped."""

Removal = Literal["removed", "unknown", "other_incarnation"]


class Fleet:
    """The registered workers.

    router: what is known of each. destinations: where they may be; their monitors look names up and check them too, and
    what is asked here is what can be said before. in_flight: requests of this gateway on a worker. new_incarnation: a
    fresh unique text. process: a name of this gateway. tell: takes what operators said of workers.
    """

    def __init__(
        self,
        router: Router,
        store: Store,
        monitors: Monitors,
        *,
        destinations: Destinations,
        process: str,
        in_flight: Callable[[str], int],
        tell: Callable[[WorkerOrdered], None],
        clock: Callable[[], float],
        new_incarnation: Callable[[], str],
    ) -> None:
        self._router = router
        self._in_flight = in_flight
        self._tell = tell
        self._orders: dict[str, Order] = {}
        self._destinations = destinations
        self._store = store
        self._monitors = monitors
        self._process = process
        self._clock = clock
        self._new_incarnation = new_incarnation
        self._registered: dict[str, Registration] = {}
        self._configured: dict[str, Registration] = {}
        self._missing_since: dict[str, float] = {}
        self._refused: dict[str, tuple[Registration, str]] = {}
        self._renewed_at = float("-inf")
        self.other_loads: list[ProcessLoad] = []

    def configure(self, urls: list[str]) -> None:
        """Register the workers of the configuration, at once and without the store."""
        for url in urls:
            registration = self._registration(url, WorkerSource.CONFIG)
            self._configured[registration.id] = registration
            self._adopt(registration)

    async def add(self, url: str) -> tuple[Registration, bool]:
        """Register a worker for all replicas; the present one and False when it is already there.

        Raises ValueError for a URL that cannot be a worker, DestinationRefused when none may be there, NameUnknown when
        that cannot be told, StoreUnavailable when others would not learn of it.
        """
        registration = self._registration(parse_worker_url(url), WorkerSource.ADMIN)
        if registration.id not in self._registered:
            await self._destinations.addresses(registration.url)
        present = self._registered.get(registration.id)
        if present is not None:
            if present.url != registration.url:
                raise ValueError(f"a worker is registered there as {present.url}; delete that first")
            return present, False
        await self._store.register(registration)
        self._adopt(registration)
        return registration, True

    async def remove(self, worker: str, incarnation: str | None) -> Removal:
        """Deregister for all replicas. What runs on the worker may finish. Raises StoreUnavailable."""
        present = self._registered.get(worker)
        if present is None and worker in self._refused:
            present = self._refused[worker][0]  # so that the store can be cleared of it
        if present is None:
            return "unknown"
        if incarnation is not None and incarnation not in (present.incarnation, self._live_incarnation(worker)):
            return "other_incarnation"
        await self._store.deregister(present.id, present.incarnation)
        self._refused.pop(worker, None)
        self._configured.pop(worker, None)
        if worker in self._registered:
            self._drop(worker)
        return "removed"

    async def order(self, worker: str, order: Order | None) -> bool:
        """Have all replicas do with a worker what an operator wants; False when it is not registered.

        Raises StoreUnavailable when others would not learn of it.
        """
        if worker not in self._registered:
            return False
        await self._store.set_order(worker, order, self._clock())
        self._apply(worker, order)
        return True

    async def sync(self) -> None:
        """One turn with the store: renew our leases, take over what changed, publish our load."""
        now = self._clock()
        try:
            await self._reconcile(await self._store.read_registry(now), now)
            if now - self._renewed_at >= RENEW_S:
                for registration in list(self._configured.values()):
                    await self._store.register(registration)
                self._renewed_at = now
            await self._store.publish_load(self._own_load(), self._clock())
            loads = await self._store.read_loads(self._clock())
            self.other_loads = [load for load in loads if load.process != self._process]
        except StoreUnavailable:
            # The store says so itself in status, metrics and one log line per transition.
            self._renewed_at = float("-inf")

    def describe(self) -> list[dict[str, Any]]:
        """Every registered worker, ready for JSON, ordered by id."""
        return [self._describe(self._registered[name]) for name in sorted(self._registered)]

    def describe_refused(self) -> list[dict[str, Any]]:
        """The registrations of the store that were not taken over, and why."""
        return [
            {"id": name, "url": registration.url, "source": registration.source.value, "because": why}
            for name, (registration, why) in sorted(self._refused.items())
        ]

    # The registry of the store against ours

    async def _reconcile(self, registry: Registry, now: float) -> None:
        stored = self._admitted(registry)
        for worker in registry.removed:
            if worker not in stored and worker in self._registered:
                self._configured.pop(worker, None)
                self._drop(worker)
        for registration in stored.values():
            if registration.id in self._configured:
                # Another replica has the same worker configured and was first. Both renew that registration and name
                # its incarnations alike: what one says of them must be of somebody whom the other knows.
                if self._registered[registration.id].incarnation != registration.incarnation:
                    self._monitors.rename(registration)
                self._configured[registration.id] = self._registered[registration.id] = registration
            else:
                self._adopt(registration)
        for registration in list(self._registered.values()):
            if registration.id in stored or registration.id in self._configured:
                self._missing_since.pop(registration.id, None)
            elif registration.source is WorkerSource.ADMIN:
                await self._store.register(registration)
            elif now - self._missing_since.setdefault(registration.id, now) > ABSENCE_S:
                self._drop(registration.id)
        for worker in self._registered:
            order = self._orders.get(worker)
            if worker in registry.orders:
                self._apply(worker, registry.orders[worker])
            elif order is not None and order.until > now:
                await self._store.set_order(worker, order, now)  # the store lost it
            elif order is not None:
                self._apply(worker, None)

    def _admitted(self, registry: Registry) -> dict[str, Registration]:
        """Of the stored registrations, by id, those that may be taken over."""
        admitted: dict[str, Registration] = {}
        refused: dict[str, tuple[Registration, str]] = {}
        for registration in registry.registrations:
            ours = self._configured.get(registration.id)
            why = self._destinations.refusal(registration.url)
            if ours is not None and ours.url != registration.url:
                why = f"the configuration has {ours.url}"
            if why is None:
                admitted[registration.id] = registration
                continue
            refused[registration.id] = registration, why
            known = self._refused.get(registration.id)
            if known is None or known[1] != why:
                extra = {"worker": registration.id, "url": registration.url, "source": registration.source.value}
                log.warning("a registration in the store is not taken over: %s", why, extra=extra)
        self._refused = refused
        return admitted

    def _apply(self, worker: str, order: Order | None) -> None:
        present = self._orders.get(worker)
        if order is present or (order is not None and order.is_like(present)):
            return
        extra: dict[str, Any] = {"worker": worker}
        if order is not None:
            self._orders[worker] = order
            for_s = round(order.until - self._clock(), 1)
            extra |= {"order": order.kind.value, "reason": order.reason, "by": order.actor, "for_s": for_s}
        else:
            del self._orders[worker]
        self._tell(WorkerOrdered(worker, order))
        log.info("worker ordered" if order is not None else "worker order ended", extra=extra)

    def _own_load(self) -> ProcessLoad:
        workers = self._router.workers
        return ProcessLoad(
            process=self._process,
            in_flight={name: self._in_flight(name) for name in workers},
            samples={name: state.sample for name, state in workers.items() if state.sample is not None},
        )

    def _registration(self, url: str, source: WorkerSource) -> Registration:
        return Registration(worker_id(url), url, self._new_incarnation(), source)

    def _live_incarnation(self, worker: str) -> str:
        """The incarnation that monitoring gave it, which tells restarts of the engine apart too."""
        state = self._router.workers.get(worker)
        return state.worker.incarnation if state is not None else ""

    def _adopt(self, registration: Registration) -> None:
        present = self._registered.get(registration.id)
        if present is not None and present.incarnation == registration.incarnation:
            return
        self._registered[registration.id] = registration
        self._monitors.watch(registration)
        log.info("worker registered", extra={"worker": registration.id, "source": registration.source.value})

    def _drop(self, worker: str) -> None:
        del self._registered[worker]
        self._missing_since.pop(worker, None)
        self._orders.pop(worker, None)
        self._monitors.forget(worker)
        log.info("worker deregistered", extra={"worker": worker})

    def _describe(self, registration: Registration) -> dict[str, Any]:
        state = self._router.workers.get(registration.id)
        description: dict[str, Any] = {
            "id": registration.id,
            "url": registration.url,
            "incarnation": registration.incarnation,
            "source": registration.source.value,
            "address": None,
            "address_problem": self._monitors.address_problem(registration.id),
        }
        return description | (self._describe_state(state) if state is not None else {})

    def _describe_state(self, state: WorkerState) -> dict[str, Any]:
        sample, now = state.sample, self._clock()
        load = None
        if sample is not None:
            load = {
                "running": sample.running,
                "waiting": sample.waiting,
                "kv_usage": sample.kv_usage,
                "stalled_s": round(sample.stalled_s, 3),
                "asleep": sample.is_asleep,
                "age_s": round(now - sample.taken_at, 3),
            }
        return {
            "incarnation": state.worker.incarnation,
            "address": state.worker.address or None,
            "health": state.health.state.value,
            "state": state.sheet.state(now).value,
            "stuck": state.is_stuck(now),
            "marks": [
                {"kind": mark.kind.value, "by": mark.reporter, "for_s": round(mark.until - now, 3)}
                for mark in state.sheet.marks
                if mark.until > now
            ],
            "order": self._describe_order(state, now),
            "requests_left": self._in_flight(state.worker.id) + self._elsewhere(state.worker.id),
            "models": list(state.worker.models),
            "engine": _describe_engine(state.worker.engine),
            "in_flight": self._in_flight(state.worker.id),
            "load": load,
        }

    def _describe_order(self, state: WorkerState, now: float) -> dict[str, Any] | None:
        order = state.order
        if order is None or order.until <= now:
            return None
        for_s = round(order.until - now, 3)
        return {"kind": order.kind.value, "reason": order.reason, "by": order.actor, "for_s": for_s}

    def _elsewhere(self, worker: str) -> int:
        """Requests that other gateways have there, as they last said."""
        return sum(load.in_flight.get(worker, 0) for load in self.other_loads)


def _describe_engine(engine: Engine) -> dict[str, Any]:
    """None where the worker does not say."""
    return {
        "name": engine.name or None,
        "version": engine.version or None,
        "model_revision": engine.revision or None,
        "spec_decode": engine.spec_decode,
        "paths": sorted(engine.paths) or None,
    }
