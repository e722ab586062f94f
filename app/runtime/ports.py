"""What the shell needs of the world, declared by the one who needs it. The edges match these structurally."""

from collections.abc import Sequence
from typing import Protocol

from app.core.fleet.commands import Dispatch, Refuse
from app.core.fleet.exchange import Call, Header
from app.core.fleet.order import Order
from app.core.fleet.reasons import Failure, MarkKind, Outcome, WaitEnd
from app.core.fleet.registry import GatewayMarks, ProcessLoad, Registration, Registry
from app.core.fleet.request import RequestFacts
from app.core.fleet.tenant import GatewayUsage
from app.core.fleet.worker import Worker
from app.core.lease import Election

# Upstream: calls to workers on the data path


class Answer(Protocol):
    """The answer of a worker, of which the head has arrived."""

    status: int
    headers: list[Header]
    """Names in lower case, values as received; hop-by-hop headers are gone."""

    is_ended_by_close: bool
    """The end of its body was that of the connection."""

    @property
    def is_complete(self) -> bool:
        """The whole body has arrived and was read."""
        ...

    async def read(self) -> bytes:
        """The next bytes of the body as they came, b"" at its end. Raises StreamBroken."""
        ...

    def close(self) -> None:
        """Done with it. Before the end of the body this closes the connection, and the worker stops working."""
        ...


class Upstream(Protocol):
    async def send(self, worker: Worker, call: Call) -> Answer:
        """Send `call` and wait for the head of the answer. Raises UpstreamError. Cancelling closes the connection."""
        ...


# Store: facts shared with other processes and replicas


class Store(Protocol):
    """Facts of all replicas. Every call raises StoreUnavailable within its limit; no decision awaits one."""

    async def read_registry(self, now: float) -> Registry:
        """`now` is the clock on which the ends of orders are returned."""
        ...

    async def register(self, registration: Registration) -> None:
        """Write one registration; CONFIG ones expire after their lease (15 s) unless written again.

        Registering by ADMIN takes back an earlier removal; a CONFIG renewal does not.
        """
        ...

    async def deregister(self, worker_id: str, incarnation: str) -> bool:
        """Remove that incarnation and remember the removal; False when another incarnation, or none, is registered."""
        ...

    async def set_order(self, worker_id: str, order: Order | None, now: float) -> None:
        """Note what an operator wants of a worker, until it is over on the clock that says `now`.

        None: nothing any more, which is remembered as well. Deregistering forgets it.
        """
        ...

    async def publish_load(self, load: ProcessLoad, now: float) -> None:
        """Publish this process's load; it expires 5 s later. `now` is the clock that its samples were taken on."""
        ...

    async def read_loads(self, now: float) -> Sequence[ProcessLoad]:
        """The load of every live process; samples' `taken_at` translated to the caller's clock at `now`."""
        ...

    async def close(self) -> None: ...


class UsageStore(Protocol):
    """What gateways tell each other of tenants. Raises StoreUnavailable within its limit; no decision awaits it."""

    async def exchange_usage(self, usage: GatewayUsage) -> Sequence[GatewayUsage]:
        """Publish this gateway's usage, which expires 5 s later; that of every live gateway, this one's too."""
        ...


class LeaderStore(Protocol):
    """Who leads. Raises StoreUnavailable within its limit; no decision awaits it."""

    async def campaign(self, name: str, known_epoch: int) -> Election:
        """Lead for 5 s, go on leading, or learn who does. known_epoch: the highest that the caller ever heard of."""
        ...

    async def resign(self, name: str, epoch: int) -> None: ...


class MarkStore(Protocol):
    """What gateways tell each other of marks. Raises StoreUnavailable within its limit; no decision awaits it."""

    async def exchange_marks(self, marks: GatewayMarks, now: float) -> Sequence[GatewayMarks]:
        """Publish this gateway's marks, each for as long as it holds; that of every gateway, this one's too.

        `until` is on the caller's clock, on which it is `now`; after_seq counts its own observations, so others' is -1.
        """
        ...


# Signals: what is learnt of workers


class Destinations(Protocol):
    """Where workers may be, by the operator's rules."""

    def refusal(self, url: str) -> str | None:
        """Why no worker may be there, as far as that can be said without looking its name up; None when one may."""
        ...

    async def addresses(self, url: str) -> Sequence[str]:
        """What the URL's name stands for, all of it allowed. Raises DestinationRefused, NameUnknown."""
        ...


class Monitors(Protocol):
    """Probes and scrapes workers, and tells the gateway what it learns, that they are there and that they went."""

    def watch(self, registration: Registration) -> None:
        """Begin, or begin anew when the incarnation changed."""
        ...

    def rename(self, registration: Registration) -> None:
        """Go on watching a worker under another incarnation: that of who registered it first."""
        ...

    def forget(self, worker_id: str) -> None: ...

    def address_problem(self, worker_id: str) -> str | None:
        """Why its name could not be used when it was looked up last; None when it could."""
        ...


# Telemetry: what the shell tells the world. Never raises, never awaits.


class Telemetry(Protocol):
    def decided(self, facts: RequestFacts, verdict: Dispatch | Refuse) -> None: ...

    def upstream_failed(self, worker_id: str, failure: Failure) -> None: ...

    def marked(self, worker_id: str, kind: MarkKind) -> None: ...

    def request_finished(self, worker_id: str, outcome: Outcome) -> None: ...

    def waited(self, facts: RequestFacts, seconds: float, end: WaitEnd) -> None: ...
