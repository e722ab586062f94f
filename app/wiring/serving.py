"""Builds and runs one serving process."""

import asyncio
import os
import secrets
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from math import ceil

from app import __version__
from app.api.auth import Keys, fixed_grants
from app.api.body import BodyLimits
from app.api.data import DataPlane
from app.api.endpoints import ENDPOINTS
from app.api.limits import EdgeLimits
from app.api.listener import Listener
from app.api.options import ProxyOptions
from app.api.proxy import Proxy
from app.api.tenancy import Tenancy, TenantSalt
from app.config.schema import Config
from app.core.fleet.pin import Pin
from app.core.fleet.tenant import Plane
from app.core.overload.health import HealthThresholds
from app.core.overload.latch import Thresholds
from app.core.overload.pressure import Pressure
from app.core.overload.settings import OverloadSettings
from app.core.overload.waiting_room import QueueSettings
from app.core.router import Router
from app.core.routing.policies import make_policy
from app.core.tenants.admission import Admission
from app.core.tenants.keyring import Keyring
from app.core.tenants.namespace import Namespace
from app.runtime.channel import Channel, Message
from app.runtime.clock import monotonic, wall
from app.runtime.gateway import TICK_S, Gateway
from app.runtime.memory import limit_bytes, resident_bytes
from app.runtime.readiness import Readiness
from app.runtime.self_watch import LOOK_S, SelfWatch
from app.runtime.serving import REPORT_S, Serving, Tenants
from app.runtime.tasks import Tasks
from app.signals.control import tls_context
from app.telemetry.access import EndedRequests
from app.telemetry.lag import start_lag_meter
from app.telemetry.merge import snapshot
from app.telemetry.metrics import Metrics
from app.upstream.client import HttpUpstream
from app.upstream.connection import ExchangeLimits
from app.wiring.chance import streams_of_chance


async def serve(config: Config, number: int, port: int, end: socket.socket) -> None:
    """Serve `port` until the control process at the other `end` of the channel says stop, or is gone."""
    async with AsyncExitStack() as stack:
        tasks = Tasks()
        stack.push_async_callback(tasks.stop)
        decisions, _ = streams_of_chance(config.seed, f"serving {number}")
        shedding, _ = streams_of_chance(config.seed, f"shedding {number}")
        router = Router(make_policy(config.policy), decisions, overload_settings(config), pins(config))
        pressure = Pressure()
        metrics = Metrics(
            endpoints=[endpoint.path for endpoint in ENDPOINTS],
            workers=lambda: router.workers,
            in_flight=lambda: router.open_requests,
            queues=lambda: router.queues,
            pressure=pressure,
            store_state=lambda: "unknown",
            clock=monotonic,
            version=__version__,
        )
        upstream = HttpUpstream(
            connect_timeout_s=config.connect_timeout_secs,
            limits=ExchangeLimits(
                total=config.request_timeout_secs,
                first_byte=config.first_byte_timeout_secs,
                idle=config.stream_idle_timeout_secs,
                header_bytes=config.max_worker_header_bytes,
            ),
            credential=config.worker_api_key.get_secret_value() if config.worker_api_key else None,
            tls=tls_context(),
        )
        stack.callback(upstream.close)
        gateway = Gateway(router, upstream, metrics, monotonic)
        readiness = Readiness(router)

        fixed = fixed_grants((key.get_secret_value() for key in config.api_key), "api_key", Plane.DATA)
        ring, admission = Keyring(fixed, is_closed=config.api_keys_file is not None), Admission()
        tenants = Tenants(ring, admission, monotonic)

        channel: Channel
        serving = Serving(gateway, lambda message: channel.send(message), lambda: snapshot(metrics.registry), tenants)
        channel = Channel(serving.take, serving.lost)
        await channel.open(end)
        stack.callback(channel.close)

        listener = Listener(config.host, port, name="data", is_shared=True)
        listener.bind()
        # The greeting ends with the keys, so that whoever is served finds workers and limits too.
        await asyncio.wait([tenants.known, serving.stop], return_when=asyncio.FIRST_COMPLETED)
        proxy = _proxy(config, gateway, Keys(ring, wall), admission, metrics, tasks, pressure, shedding.random)
        watch = SelfWatch(
            pressure,
            held=lambda: proxy.held.size,
            most_held=config.max_inflight_body_bytes,
            resident=resident_bytes,
            most_resident=config.max_memory_bytes or limit_bytes(processes_of(config)),
            clock=monotonic,
        )

        def lagged(seconds: float) -> None:
            metrics.loop_lagged(seconds)
            watch.lagged(seconds)

        data = DataPlane(proxy, router, config.model_alias, readiness.problem, metrics.refused)
        running = tasks.start(listener.run(data, _edge_limits(config, metrics)), "data listener")
        tasks.every(REPORT_S, serving.report, "report")
        if config.queue_timeout_secs:
            tasks.every(TICK_S, gateway.tick, "queue")
        start_lag_meter(tasks.start, lagged, clock=monotonic)
        tasks.every(LOOK_S, watch.look, "pressure")
        channel.send(_ready())
        await asyncio.wait([serving.stop, running], return_when=asyncio.FIRST_COMPLETED)
        readiness.is_shutting_down = True
        if config.shutdown_delay_secs:
            # Who has not yet read that we are not ready goes on being served.
            await asyncio.wait([serving.cut], timeout=config.shutdown_delay_secs)
        await listener.stop(running, config.shutdown_grace_period_secs, serving.cut)
        channel.send({"kind": "snapshot", "number": 0, "families": snapshot(metrics.registry)})
        await channel.flushed()


def _edge_limits(config: Config, metrics: Metrics) -> EdgeLimits:
    return EdgeLimits(
        max_head_bytes=config.max_head_bytes,
        max_headers=config.max_headers,
        max_target_bytes=config.max_url_bytes,
        head_timeout_s=config.request_head_timeout_secs,
        body_window_s=config.body_pace_window_secs,
        body_pace=ceil(config.min_body_bytes_per_sec * config.body_pace_window_secs),
        max_connections=config.max_connections,
        max_connections_per_client=config.max_connections_per_client,
        write_stall_s=config.write_stall_timeout_secs,
        on_refused=lambda reason: metrics.refused(reason.value),
    )


def pins(config: Config) -> dict[str, Pin]:
    return {model: pool.pin() for model, pool in config.pools.items()}


def thresholds(config: Config) -> HealthThresholds:
    return HealthThresholds(config.health_failure_threshold, config.health_success_threshold)


def overload_settings(config: Config) -> OverloadSettings:
    return OverloadSettings(
        thresholds(config),
        Thresholds(config.overload_waiting_requests, config.overload_kv_usage),
        QueueSettings(config.queue_timeout_secs, config.max_queue_requests, config.max_queue_tokens),
        config.stall_timeout_secs,
        config.max_worker_requests,
    )


def processes_of(config: Config) -> int:
    return config.processes or len(os.sched_getaffinity(0))


def _proxy(
    config: Config,
    gateway: Gateway,
    keys: Keys,
    admission: Admission,
    metrics: Metrics,
    tasks: Tasks,
    pressure: Pressure,
    draw: Callable[[], float],
) -> Proxy:
    # The control process has put the one of a file, or one of its own making, in the place of one that is not set.
    namespace = Namespace([key.get_secret_value().encode() for key in config.tenant_hash_key])
    return Proxy(
        gateway,
        keys,
        Tenancy(admission, namespace, TenantSalt(config.tenant_salt)),
        ProxyOptions(
            config.max_body_bytes,
            config.model_alias,
            config.expose_routing_headers,
            BodyLimits(
                config.max_batch_inputs,
                config.max_n,
                config.max_string_chars,
                config.max_json_keys,
                config.max_json_nodes,
            ),
            config.max_inflight_body_bytes,
            config.sse_keepalive_secs,
            config.split_batches,
            config.max_metadata_bytes,
        ),
        EndedRequests(metrics),
        tasks,
        monotonic,
        new_id=lambda: secrets.token_hex(16),
        pressure=pressure,
        draw=draw,
    )


def _ready() -> Message:
    return {"kind": "ready"}
