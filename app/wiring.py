"""The composition root: builds one gateway process from its configuration, and runs it. The only file that knows
everybody."""

import asyncio
import logging
import os
import random
import secrets
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from app import __version__
from app.api.admin import make_admin_app
from app.api.auth import Keys
from app.api.data import DataPlane
from app.api.endpoints import ENDPOINTS
from app.api.listener import Listener
from app.api.monitoring import Monitoring
from app.api.proxy import Proxy, ProxyOptions
from app.config.schema import Config
from app.core.overload.health import HealthThresholds
from app.core.router import Router
from app.core.routing.policies import make_policy
from app.runtime.clock import monotonic
from app.runtime.fleet import Fleet
from app.runtime.gateway import Gateway
from app.runtime.readiness import Readiness
from app.runtime.status import Status
from app.runtime.tasks import Tasks
from app.signals.control import tls_context
from app.signals.fleet import FleetMonitor
from app.signals.monitor import MonitorContext, MonitorSettings
from app.store.embedded import EmbeddedServer
from app.store.redis import RedisStore
from app.telemetry.access import EndedRequests
from app.telemetry.lag import start_lag_meter
from app.telemetry.metrics import Metrics
from app.upstream.client import HttpUpstream

log = logging.getLogger("warmset")

SYNC_S = 1.0
"""How often the store is written and read."""

ADMIN_GRACE_S = 1.0
"""Time for requests of the admin and metrics listeners to end; none of them takes long."""


class GatewayProcess:
    """Everything that one gateway process is made of. Started once, stopped once."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._stack = AsyncExitStack()
        self._tasks = Tasks()
        self._tls = tls_context()
        self._listening: list[tuple[Listener, asyncio.Task[None]]] = []
        policy_chance, self._timing_chance = _streams_of_chance(config.seed)
        thresholds = HealthThresholds(config.health_failure_threshold, config.health_success_threshold)
        self.router = Router(make_policy(config.policy), policy_chance, thresholds)
        self.readiness = Readiness(self.router)

    @property
    def addresses(self) -> dict[str, str]:
        """Listener name -> URL, with the ports that were really taken."""
        return {listener.name: listener.url for listener, _ in self._listening}

    async def start(self) -> None:
        """Take the addresses, start the store if it is ours, and serve.

        Raises OSError or EmbeddedServerError with a text for the operator, and leaves nothing behind then.
        """
        try:
            await self._start()
        except BaseException:
            await self._close()
            raise

    async def stop(self, cut_now: "asyncio.Future[None]") -> None:
        """Not ready, no new connections, running requests get the grace period or until `cut_now`; then close."""
        self.readiness.is_shutting_down = True
        # The data listener first: readiness and metrics can be asked while its requests end.
        for listener, serving in self._listening:
            grace_s = self.config.shutdown_grace_period_secs if listener.name == "data" else ADMIN_GRACE_S
            await listener.stop(serving, grace_s, cut_now)
        await self._close()

    async def _start(self) -> None:
        config = self.config
        data, admin, monitoring = self._bind()
        metrics = Metrics(
            endpoints=[endpoint.path for endpoint in ENDPOINTS],
            workers=lambda: self.router.workers,
            in_flight=lambda: self.router.open_requests,
            store_state=lambda: store.state,
            clock=monotonic,
            version=__version__,
        )
        store = await self._open_store(metrics)
        upstream = HttpUpstream(
            connect_timeout_s=config.connect_timeout_secs,
            request_timeout_s=config.request_timeout_secs,
            credential=_secret(config.worker_api_key),
            tls=self._tls,
        )
        self._stack.callback(upstream.close)
        gateway = Gateway(self.router, upstream, metrics, monotonic)
        monitors = self._monitors(gateway)
        process = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        fleet = Fleet(
            gateway, store, monitors, process=process, clock=monotonic, new_incarnation=lambda: secrets.token_hex(6)
        )
        status = Status(
            self.router, fleet, self.readiness, store, version=__version__, process=process, clock=monotonic
        )
        fleet.configure(list(config.worker_urls))
        self._tasks.every(SYNC_S, fleet.sync, "store sync")
        start_lag_meter(self._tasks.start, metrics.loop_lagged, clock=monotonic)
        self._serve(data, self._data_plane(gateway, metrics))
        self._serve(admin, make_admin_app(fleet, status, self.readiness.problem, _secret(config.admin_api_key)))
        self._serve(monitoring, Monitoring(metrics.exposition, self.readiness.problem))

    def _bind(self) -> list[Listener]:
        """The three listeners on their addresses, before anything else is started: what fails most fails first."""
        config = self.config
        listeners = [
            Listener(config.host, config.port, name="data"),
            Listener(config.admin_host, config.admin_port, name="admin"),
            Listener(config.prometheus_host, config.prometheus_port, name="metrics"),
        ]
        for listener in listeners:
            listener.bind()
            self._stack.callback(listener.release)
        return listeners

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
            url,
            start=self._tasks.start,
            clock=monotonic,
            rng=self._timing_chance,
            on_failure=metrics.store_failed,
        )
        self._stack.push_async_callback(store.close)
        return store

    def _monitors(self, gateway: Gateway) -> FleetMonitor:
        config = self.config
        settings = MonitorSettings(
            health_check_interval_s=config.health_check_interval_secs,
            health_check_timeout_s=config.health_check_timeout_secs,
            load_interval_s=config.load_monitor_interval_secs,
            worker_api_key=_secret(config.worker_api_key),
        )
        monitors = FleetMonitor(
            MonitorContext(
                tls=self._tls,
                settings=settings,
                emit=gateway.handle,
                own_in_flight=self._in_flight,
                start=self._tasks.start,
                clock=monotonic,
                rng=self._timing_chance,
            )
        )
        self._stack.push_async_callback(monitors.stop)
        gateway.on_probe(monitors.probe_now)
        return monitors

    def _in_flight(self, worker: str) -> int:
        state = self.router.workers.get(worker)
        return state.in_flight if state is not None else 0

    def _data_plane(self, gateway: Gateway, metrics: Metrics) -> DataPlane:
        config = self.config
        proxy = Proxy(
            gateway,
            Keys(key.get_secret_value() for key in config.api_key),
            ProxyOptions(config.max_body_bytes, config.model_alias, config.expose_routing_headers),
            EndedRequests(metrics),
            self._tasks,
            monotonic,
            new_id=lambda: secrets.token_hex(16),
        )
        return DataPlane(proxy, self.router, config.model_alias, self.readiness.problem)

    def _serve(self, listener: Listener, app: Any) -> None:
        self._listening.append((listener, self._tasks.start(listener.run(app), f"{listener.name} listener")))

    async def _close(self) -> None:
        await self._stack.aclose()


def _streams_of_chance(seed: int | None) -> tuple[random.Random, random.Random]:
    """One for decisions and one for jitter, so that more of one never shifts the other."""
    chance = random.Random(seed)
    return random.Random(chance.random()), random.Random(chance.random())


def _secret(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret is not None else None
