"""The monitors of all registered workers."""

import asyncio
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from app.core.fleet.events import WorkerGone
from app.core.fleet.registry import Registration
from app.signals.monitor import MonitorContext, WorkerMonitor

SPREAD_PER_WORKER_S = 0.01
SPREAD_S = 5.0
"""The first probes of a fleet are spread over this long at most; a few workers are asked at once.
A first contact is four exchanges, about 5 ms of CPU."""


class FleetMonitor:
    """Watches exactly the workers that are registered.

    It is the one that adds to incarnations (see WorkerMonitor), so it is also the one that says WorkerGone: callers
    know a worker by its registration. All methods but stop() are synchronous; events are emitted from within them.
    """

    def __init__(self, context: MonitorContext) -> None:
        self._context = context
        self._monitors: dict[str, WorkerMonitor] = {}
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def monitors(self) -> Mapping[str, WorkerMonitor]:
        """Worker id -> its monitor, for /status and metrics. A live view."""
        return MappingProxyType(self._monitors)

    def follow(self, registrations: Iterable[Registration]) -> None:
        """Make these the workers that are watched: new ones are begun, missing ones forgotten."""
        wanted = {registration.id: registration for registration in registrations}
        for worker_id in [worker_id for worker_id in self._monitors if worker_id not in wanted]:
            self.forget(worker_id)
        for registration in wanted.values():
            self.watch(registration)

    def watch(self, registration: Registration) -> None:
        """Begin to watch a worker. One that is watched under the same URL and incarnation goes on undisturbed."""
        present = self._monitors.get(registration.id)
        if present is not None:
            known = present.registration
            if (known.url, known.incarnation) == (registration.url, registration.incarnation):
                present.registration = registration
                return
            # No WorkerGone: the WorkerSeen of the new one replaces it, and its place in the pools is kept.
            self._end(present)
        monitor = self._monitors[registration.id] = WorkerMonitor(registration, self._context)
        monitor.begin(min(SPREAD_S, SPREAD_PER_WORKER_S * len(self._monitors)) * self._context.rng.random())

    def rename(self, registration: Registration) -> None:
        """Go on watching a worker, of the same URL, under another incarnation."""
        self._monitors[registration.id].rename(registration)

    def forget(self, worker_id: str) -> None:
        """Stop watching a worker and tell that it is gone; nothing when it is not watched."""
        monitor = self._monitors.pop(worker_id, None)
        if monitor is not None:
            self._end(monitor)
            self._context.emit(WorkerGone(worker_id, monitor.worker.incarnation))

    def probe_now(self, worker_id: str) -> None:
        """What the router's Probe command asks for."""
        monitor = self._monitors.get(worker_id)
        if monitor is not None:
            monitor.probe_now()

    def address_problem(self, worker_id: str) -> str | None:
        """Why the name of a worker could not be used when it was looked up last; None when it could."""
        monitor = self._monitors.get(worker_id)
        return monitor.address_problem if monitor is not None else None

    async def stop(self) -> None:
        """Stop watching all, telling nobody, and wait until all connections are closed."""
        for monitor in self._monitors.values():
            self._end(monitor)
        self._monitors.clear()
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _end(self, monitor: WorkerMonitor) -> None:
        task = monitor.end()
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
