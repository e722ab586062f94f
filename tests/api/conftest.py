"""A data listener in this process, in front of raw workers: everything real but discovery."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import count

import pytest

from app.api.auth import Keys, fixed_grants
from app.api.data import DataPlane
from app.api.limits import EdgeLimits
from app.api.listener import Listener
from app.api.options import ProxyOptions
from app.api.proxy import Proxy
from app.api.tenancy import Tenancy, TenantSalt
from app.core.fleet.commands import Dispatch, Refuse
from app.core.fleet.events import HealthReported, WorkerSeen
from app.core.fleet.reasons import Failure, MarkKind, Outcome, WaitEnd
from app.core.fleet.record import RequestRecord
from app.core.fleet.request import RequestFacts
from app.core.fleet.tenant import KeySet, Plane
from app.core.fleet.worker import Worker
from app.core.overload.settings import OverloadSettings
from app.core.router import Router
from app.core.routing.policies import make_policy
from app.core.tenants.admission import Admission
from app.core.tenants.keyring import Keyring
from app.core.tenants.namespace import Namespace
from app.runtime.clock import monotonic, wall
from app.runtime.gateway import TICK_S, Gateway
from app.runtime.readiness import Readiness
from app.runtime.tasks import Tasks
from app.upstream.client import HttpUpstream
from app.upstream.connection import ExchangeLimits
from tests.fakes.raw_worker import RawWorker
from tests.patience import FOR_EVER_S, PATIENCE_S, eventually, patience

PATIENT = EdgeLimits(head_timeout_s=FOR_EVER_S, body_window_s=FOR_EVER_S, write_stall_s=FOR_EVER_S)
"""For tests of something else than time."""


@pytest.fixture(autouse=True)
def _refused_clients_have_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that goes on sending may need longer than a moment to read why it was refused."""
    monkeypatch.setattr("app.api.edge.LINGER_S", FOR_EVER_S)


@dataclass
class Told:
    """Telemetry that remembers."""

    gap_bounds_s: tuple[float, ...] = (0.01, 0.1, 1.0)
    records: list[RequestRecord] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    marks: list[tuple[str, MarkKind]] = field(default_factory=list)
    waits: list[WaitEnd] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    """Of requests that are not the proxy's."""

    def decided(self, facts: RequestFacts, verdict: Dispatch | Refuse) -> None: ...

    def marked(self, worker_id: str, kind: MarkKind) -> None:
        self.marks.append((worker_id, kind))

    def waited(self, facts: RequestFacts, seconds: float, end: WaitEnd) -> None:
        self.waits.append(end)

    def upstream_failed(self, worker_id: str, failure: Failure) -> None:
        self.failures.append(failure)

    def request_finished(self, worker_id: str, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def ended(self, record: RequestRecord) -> None:
        self.records.append(record)


@dataclass
class Edge:
    """A running data listener. `at_rest` waits until nothing is held any more, and fails when something stays."""

    router: Router
    gateway: Gateway
    upstream: HttpUpstream
    listener: Listener
    serving: "asyncio.Task[None]"
    told: Told
    tasks: Tasks
    admission: Admission
    ring: Keyring
    proxy: Proxy
    talks: "list[Talk]" = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.listener.url.rpartition(":")[2])

    @property
    def url(self) -> str:
        return self.listener.url

    def add(self, worker: RawWorker, model: str = "m") -> None:
        name = worker.url.removeprefix("http://")
        entry = b'{"id":"%s","object":"model","owned_by":"vllm"}' % model.encode()
        self.gateway.handle(WorkerSeen(Worker(name, worker.url, "1", {model: entry})))
        self.gateway.handle(HealthReported(name, "1", healthy=True))

    async def at_rest(self) -> None:
        try:
            await eventually(lambda: not self._held())
        except AssertionError:
            raise AssertionError(f"still held: {self._held()}") from None

    def _held(self) -> dict[str, int]:
        held = {f"load of {name}": state.in_flight for name, state in self.router.workers.items()}
        held |= {"requests": self.router.open_requests, "connections": self.busy_connections}
        held |= {"waiting": sum(map(len, self.router.queues.values()))}
        return {what: number for what, number in held.items() if number}

    @property
    def busy_connections(self) -> int:
        idle = sum(len(origin._idle) for origin in self.upstream._origins.values())
        return self.upstream.open_connections - idle

    async def talk(self, data: bytes, receive_buffer: int | None = None) -> "Talk":
        """`receive_buffer`: bytes that the client's kernel takes in; the usual megabytes hide who reads slowly."""
        end = socket.socket()
        if receive_buffer is not None:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        end.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(end, ("127.0.0.1", self.port))
        except OSError:
            end.close()
            raise
        reader, writer = await asyncio.open_connection(sock=end)
        writer.write(data)
        self.talks.append(Talk(reader, writer))
        return self.talks[-1]


@dataclass
class Talk:
    """A client on a raw socket."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def rest(self) -> bytes:
        """Everything until the gateway closes."""
        async with patience():
            return await self.reader.read()

    async def until(self, mark: bytes) -> bytes:
        async with patience():
            return await self.reader.readuntil(mark)

    def leave(self) -> None:
        self.writer.transport.abort()


StartEdge = Callable[..., Awaitable[Edge]]


@pytest.fixture
async def start_edge() -> AsyncIterator[StartEdge]:
    async with AsyncExitStack() as stack:

        async def start(
            *,
            keys: tuple[str, ...] = (),
            key_set: KeySet | None = None,
            salt: TenantSalt = TenantSalt.OFF,
            aliases: dict[str, str] | None = None,
            max_body_bytes: int = 1 << 20,
            request_timeout_s: float = FOR_EVER_S,
            first_byte_s: float = FOR_EVER_S,
            idle_s: float = FOR_EVER_S,
            edge_limits: EdgeLimits = PATIENT,
            policy: str = "round_robin",
            max_held_bytes: int = 1 << 30,
            sse_keepalive_s: float = 0.0,
            split_batches: int = 0,
            max_metadata_bytes: int = 0,
            overload: OverloadSettings | None = None,
            clock: Callable[[], float] = monotonic,
        ) -> Edge:
            """`clock`: what limits of tenants are measured by."""
            tasks = Tasks()
            stack.push_async_callback(tasks.stop)
            told = Told()
            router = Router(make_policy(policy), random.Random(0), overload)
            upstream = HttpUpstream(
                connect_timeout_s=PATIENCE_S,
                limits=ExchangeLimits(request_timeout_s, first_byte_s, idle_s),
                credential="worker-key",
            )
            stack.callback(upstream.close)
            gateway = Gateway(router, upstream, told, monotonic)
            tasks.every(TICK_S, gateway.tick, "queue")
            options = ProxyOptions(
                max_body_bytes,
                aliases or {},
                expose_routing_headers=True,
                max_held_bytes=max_held_bytes,
                sse_keepalive_s=sse_keepalive_s,
                split_batches=split_batches,
                max_metadata_bytes=max_metadata_bytes,
            )
            ids = count(1)
            fixed = fixed_grants(keys, "api_key", Plane.DATA)
            ring, admission = Keyring(fixed, is_closed=key_set is not None), Admission()
            if key_set is not None:
                ring.replace(key_set.grants)
                admission.replace(key_set, clock())
            tenancy = Tenancy(admission, Namespace([b"a secret of sixteen bytes"]), salt)
            proxy = Proxy(gateway, Keys(ring, wall), tenancy, options, told, tasks, clock, lambda: f"made-{next(ids)}")
            listener = Listener("127.0.0.1", 0, name="data")
            listener.bind()
            app = DataPlane(proxy, router, aliases or {}, Readiness(router).problem, told.refusals.append)
            serving = tasks.start(listener.run(app, edge_limits), "listener")
            edge = Edge(router, gateway, upstream, listener, serving, told, tasks, admission, ring, proxy)

            async def stop() -> None:
                cut_now = asyncio.get_running_loop().create_future()
                for talk in edge.talks:
                    talk.leave()
                await listener.stop(serving, 0.2, cut_now)

            stack.push_async_callback(stop)
            await eventually(lambda: listener._server is not None and listener._server.started)
            return edge

        yield start


@pytest.fixture
async def edge(start_edge: StartEdge) -> Edge:
    return await start_edge()
