"""Builds and runs the control process: everything about a gateway but the requests."""

import asyncio
import os
import secrets
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from app import __version__
from app.api.admin import make_admin_app
from app.api.auth import Keys
from app.api.endpoints import ENDPOINTS
from app.api.listener import Listener, Reservation
from app.api.monitoring import Monitoring
from app.config.addresses import is_loopback
from app.config.schema import Config
from app.core.fleet.allow import DestinationRules, parse_allow_list
from app.core.fleet.events import Event
from app.core.fleet.tenant import Plane
from app.core.journal import FleetEvent, to_record
from app.core.lease import RENEW_S
from app.core.router import Router
from app.core.routing.facts import facts_of
from app.core.routing.policies import make_policy
from app.core.tenants.division import Division
from app.runtime import marks, tenancy
from app.runtime.channel import Message
from app.runtime.clock import monotonic, wall
from app.runtime.fleet import Fleet
from app.runtime.leader import Leader
from app.runtime.processes import Launch, Processes
from app.runtime.readiness import Readiness
from app.runtime.status import Status
from app.runtime.tasks import Tasks
from app.runtime.tenancy import TenantControl
from app.signals.control import tls_context
from app.signals.destinations import Destinations
from app.signals.fleet import FleetMonitor
from app.signals.monitor import MonitorContext, MonitorSettings
from app.store.embedded import EmbeddedServer
from app.store.redis import RedisStore
from app.telemetry.instruments import Counter, Gauge
from app.telemetry.merge import MergedMetrics, snapshot
from app.telemetry.metrics import Metrics
from app.wiring.chance import streams_of_chance
from app.wiring.launch import Assignment, launch_serving
from app.wiring.serving import overload_settings, pins, processes_of, thresholds
from app.wiring.tenants import admin_ring, keys_file, with_hash_keys

SYNC_S = 1.0
"""How often the store is written and read."""

READY_S = 30.0
"""Time for serving processes to start."""

ADMIN_GRACE_S = 1.0
"""Time for requests of the admin and metrics listeners to end; none of them takes long."""


class ControlProcess:
    """Started once, stopped once. `is_readable`: logs are for a person, see telemetry.logs."""

    def __init__(self, config: Config, log_level: str, *, is_readable: bool) -> None:
        self.config = with_hash_keys(config)
        self._log = (log_level, is_readable)
        self._stack = AsyncExitStack()
        self._tasks = Tasks()
        self._listening: list[tuple[Listener, asyncio.Task[None]]] = []
        decisions, self._timing = streams_of_chance(config.seed, "control")
        # Decides about no request: it keeps what is known of workers, for /status, metrics and new processes.
        self.router = Router(make_policy(config.policy), decisions, overload_settings(config), pins(config))
        self._workers_readiness = Readiness(self.router)
        self.addresses: dict[str, str] = {}
        self._processes: Processes
        self._marks: marks.SharedMarks
        self.tenants: TenantControl

    async def start(self) -> None:
        """Take the addresses, start the store if it is ours, and serve; returns when clients can connect.

        Raises OSError or EmbeddedServerError with a text for the operator, and leaves nothing behind then.
        """
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise

    async def stop(self, cut_now: "asyncio.Future[None]") -> None:
        """Not ready, no new connections, running requests get the grace period or until `cut_now`; then close."""
        self._workers_readiness.is_shutting_down = True
        # The serving processes first: readiness and metrics can be asked while their requests end.
        config = self.config
        await self._processes.end(config.shutdown_delay_secs + config.shutdown_grace_period_secs, cut_now)
        for listener, running in self._listening:
            await listener.stop(running, ADMIN_GRACE_S, cut_now)
        await self._stack.aclose()

    @property
    def open_requests(self) -> int:
        """Of all serving processes, as last reported."""
        return self._processes.open_requests

    def not_ready(self) -> str | None:
        """Why this gateway should get no traffic, or None."""
        problem = self._workers_readiness.problem()
        if problem is None and not self._processes.ready:
            return "no serving process is ready yet"
        return problem

    async def _start(self) -> None:
        config = self.config
        data, admin, monitoring = self._take_addresses()
        merged = MergedMetrics()
        restarts = Counter("process_restarts_total", "Serving processes that ended by themselves and were replaced.")
        serving = Gauge("processes", "Serving processes that are ready.", (), lambda: [((), float(processes.ready))])
        leading = Gauge(
            "leader",
            "1 when this gateway leads those on its store, else 0.",
            (),
            lambda: [((), float(leader.leads()))],
        )
        metrics = Metrics(
            endpoints=[endpoint.path for endpoint in ENDPOINTS],
            workers=lambda: self.router.workers,
            in_flight=lambda: 0,
            queues=dict,
            store_state=lambda: store.state,
            clock=monotonic,
            version=__version__,
            further=(serving, restarts, leading),
        )
        store = await self._open_store(metrics)
        destinations = self._destinations()
        monitors = self._monitors(destinations)

        def ended(families: list[Any]) -> None:
            merged.retire(families)
            restarts.add()

        processes = self._processes = Processes(
            processes_of(config),
            self._tasks,
            self._launcher(data.port),
            self._greeting,
            on_probe=monitors.probe_now,
            on_ended=ended,
            on_usage=lambda number, usage: self.tenants.reported(number, usage),
            on_mark=lambda slot, record: self._marks.made(slot, record),
            clock=monotonic,
        )
        name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        leader = Leader(store, name, monotonic)
        self._marks = marks.SharedMarks(self.router, store, processes, name, monotonic)
        fleet = Fleet(
            self.router,
            store,
            monitors,
            destinations=destinations,
            process=name,
            in_flight=processes.in_flight,
            tell=self._learn,
            clock=monotonic,
            new_incarnation=lambda: secrets.token_hex(6),
        )
        ring, is_open = admin_ring(config), is_loopback(config.admin_host) or config.insecure
        tenants = self.tenants = TenantControl(
            processes,
            len(processes.slots),
            store,
            # Until others are heard of, as many as the operator says, with as many processes as this one.
            Division(name, len(processes.slots), (config.replicas - 1) * len(processes.slots)),
            ring,
            keys_file(config),
            monotonic,
        )
        status = Status(
            self.router,
            fleet,
            self.not_ready,
            store,
            processes,
            tenants.describe,
            leader.describe,
            version=__version__,
            gateway=name,
            clock=monotonic,
        )

        async def exposition(accept: str) -> tuple[bytes, str]:
            merged.update(snapshot(metrics.registry), await processes.snapshots())
            return merged.exposition(accept)

        fleet.configure(list(config.worker_urls))
        tenants.load()
        processes.start()
        self._tasks.every(SYNC_S, fleet.sync, "store sync")
        self._tasks.every(marks.SYNC_S, self._marks.sync, "marks sync")
        self._tasks.every(tenancy.SYNC_S, tenants.sync, "tenants sync")
        self._tasks.every(tenancy.POLL_S, tenants.watch, "keys file watch")
        self._tasks.every(RENEW_S, leader.campaign, "leader")
        self._stack.push_async_callback(leader.resign)
        admin_keys = Keys(ring, wall, Plane.ADMIN)
        self._serve(admin, make_admin_app(fleet, status, self.not_ready, admin_keys, monotonic, may_be_open=is_open))
        self._serve(monitoring, Monitoring(exposition, self.not_ready))
        await processes.wait_ready(READY_S)

    def _take_addresses(self) -> tuple[Reservation, Listener, Listener]:
        """Before anything else is started: what fails most fails first."""
        config = self.config
        data = Reservation(config.host, config.port, name="data")
        self._stack.callback(data.release)
        self.addresses["data"] = data.url
        admin = Listener(config.admin_host, config.admin_port, name="admin")
        monitoring = Listener(config.prometheus_host, config.prometheus_port, name="metrics")
        for listener in (admin, monitoring):
            listener.bind()
            self._stack.callback(listener.release)
            self.addresses[listener.name] = listener.url
        return data, admin, monitoring

    async def _open_store(self, metrics: Metrics) -> RedisStore:
        config = self.config
        self._stack.push_async_callback(self._tasks.stop)
        if config.redis_url is not None:
            url = config.redis_url.get_secret_value()
        else:
            folder = Path(config.store_dir) if config.store_dir else None
            server = EmbeddedServer(start=self._tasks.start, folder=folder)
            await server.start()
            self._stack.push_async_callback(server.stop)
            url = server.url
        store = RedisStore(
            url, start=self._tasks.start, clock=monotonic, rng=self._timing, on_failure=metrics.store_failed
        )
        self._stack.push_async_callback(store.close)
        return store

    def _destinations(self) -> Destinations:
        allow, configured = parse_allow_list(self.config.worker_url_allow), frozenset(self.config.worker_urls)
        return Destinations(DestinationRules(allow, configured), start=self._tasks.start)

    def _monitors(self, destinations: Destinations) -> FleetMonitor:
        config = self.config
        settings = MonitorSettings(
            health_check_interval_s=config.health_check_interval_secs,
            health_check_timeout_s=config.health_check_timeout_secs,
            load_interval_s=config.load_monitor_interval_secs,
            worker_api_key=_secret(config.worker_api_key),
            paths=[endpoint.path for endpoint in ENDPOINTS],
        )
        monitors = FleetMonitor(
            MonitorContext(
                destinations=destinations,
                tls=tls_context(),
                settings=settings,
                emit=self._learn,
                own_in_flight=self._sampling,
                start=self._tasks.start,
                clock=monotonic,
                rng=self._timing,
            )
        )
        self._stack.push_async_callback(monitors.stop)
        return monitors

    def _launcher(self, port: int) -> Launch:
        numbers = iter(range(1 << 30))

        async def launch(end: socket.socket) -> Any:
            return await launch_serving(Assignment(self.config, next(numbers), port, *self._log), end)

        return launch

    # Facts

    def _learn(self, event: Event) -> None:
        """What a monitor says: for our own view, and for every serving process."""
        assert isinstance(event, FleetEvent)
        self.router.handle(event, monotonic())
        self._processes.tell({"kind": "fact", "record": to_record(event)})

    def _sampling(self, worker: str) -> int:
        """An engine is being asked for its load: each process notes what it has in flight there just now."""
        self._processes.tell({"kind": "sampling", "worker": worker})
        return self._processes.in_flight(worker)

    def _greeting(self) -> list[Message]:
        """What a new process must know of workers and tenants."""
        facts = [fact for state in self.router.workers.values() for fact in facts_of(state, thresholds(self.config))]
        return [
            *({"kind": "fact", "record": to_record(fact)} for fact in facts),
            *self._marks.greeting(),
            *self.tenants.greeting(),
        ]

    def _serve(self, listener: Listener, app: Any) -> None:
        self._listening.append((listener, self._tasks.start(listener.run(app), f"{listener.name} listener")))


def _secret(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret is not None else None
