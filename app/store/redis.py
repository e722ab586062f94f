"""The store over Redis (7 or later) or Valkey: one script per operation."""

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from app.core.fleet.errors import StoreUnavailable
from app.core.fleet.order import Order
from app.core.fleet.registry import GatewayMarks, ProcessLoad, Registration, Registry, WorkerSource
from app.core.fleet.rng import Rng
from app.core.fleet.tenant import GatewayUsage
from app.core.lease import LEASE_S as LEADER_LEASE_S
from app.core.lease import MAX_EPOCH, Election, Place
from app.store import scripts
from app.store.address import Address
from app.store.breaker import Breaker, StoreState
from app.store.codec import (
    Malformed,
    decode_load,
    decode_marks,
    decode_order,
    decode_registration,
    decode_usage,
    encode_load,
    encode_marks,
    encode_order,
    encode_registration,
    encode_usage,
    life_of,
)
from app.store.connections import Arguments, Connections, StartTask, StoreLimits
from app.store.keys import DEFAULT_PREFIX, Keys

log = logging.getLogger("warmset.store")

LEASE_S = 15.0
"""Life of a CONFIG registration that nobody renews."""
REMOVAL_S = 3600.0
"""How long a deleted worker stays deleted against the configurations that still name it."""
LOAD_S = 5.0
"""Life of a process's load, and of a gateway's usage."""
MAX_LOGGED = 64
"""Malformed entries that get a log line each; later ones are only counted."""

Value = TypeVar("Value")


class RedisStore:
    """Implements `runtime.ports.Store`. Every operation raises StoreUnavailable within its limits.

    state: "up", "down" (three calls in a row failed: calls are refused at once for 1-5 s) or "unknown" (never asked).
    since: the clock's reading at the last change of state. last_error: text of the last failure, or "".
    malformed: stored values that were skipped because they could not be used.
    shown_url: the address without secrets.
    """

    def __init__(
        self,
        url: str,
        *,
        start: StartTask,
        clock: Callable[[], float],
        rng: Rng,
        on_failure: Callable[[], None] = lambda: None,
        prefix: str = DEFAULT_PREFIX,
        limits: StoreLimits | None = None,
        lease_s: float = LEASE_S,
        removal_s: float = REMOVAL_S,
        load_s: float = LOAD_S,
    ) -> None:
        """Connects to nothing yet. Raises ValueError for a URL or prefix that cannot be used.

        on_failure: told of every call that failed or ran out of time.
        """
        address = Address(url)
        self.shown_url = address.shown
        self.malformed = 0
        self._keys = Keys(prefix)
        self._clock = clock
        self._breaker = Breaker(rng, clock())
        self._on_failure = on_failure
        self._connections = Connections(address, limits or StoreLimits(), start)
        self._lease_ms = round(lease_s * 1000)
        self._removal_ms = round(removal_s * 1000)
        self._load_ms = round(load_s * 1000)
        self._logged: set[tuple[str, str]] = set()

    def __repr__(self) -> str:
        return f"RedisStore({self.shown_url}, {self.state})"

    @property
    def state(self) -> StoreState:
        return self._breaker.state

    @property
    def since(self) -> float:
        return self._breaker.since

    @property
    def last_error(self) -> str:
        return self._breaker.last_error

    # Registry

    async def read_registry(self, now: float) -> Registry:
        """All live registrations, removals and orders. What cannot be used is left out, counted and logged once.

        `now` is the clock on which the orders' ends are returned.
        """
        keys = self._keys
        reply = await self._run(scripts.READ_REGISTRY, [keys.workers, keys.removed, keys.orders], [])
        server_ms, live, removed, orders, foreign = self._shape(reply, 5)
        self._count_foreign(foreign, "registry")
        registrations = self._decoded("registration", live, decode_registration)
        registrations.sort(key=lambda registration: registration.id)
        given = self._decoded("order", orders, lambda worker, value: (worker, decode_order(value, int(server_ms), now)))
        return Registry(
            tuple(registrations),
            frozenset(name.decode("utf-8", "replace") for name in removed),
            dict(given),
        )

    async def register(self, registration: Registration) -> None:
        """Write a registration, or renew the lease of a CONFIG one.

        A CONFIG renewal keeps the incarnation that is registered for the same URL, whichever process wrote it: read the
        registry to learn it. It changes nothing when an operator has removed the worker or registered it himself.
        """
        config = registration.source is WorkerSource.CONFIG
        await self._run(
            scripts.REGISTER,
            [self._keys.workers, self._keys.removed],
            [
                registration.id,
                registration.source.value,
                registration.url,
                self._lease_ms if config else 0,
                encode_registration(registration),
            ],
        )

    async def deregister(self, worker_id: str, incarnation: str) -> bool:
        """Remove that incarnation and remember it for an hour; False when it is not what is registered."""
        keys = [self._keys.workers, self._keys.removed, self._keys.orders]
        return bool(await self._run(scripts.DEREGISTER, keys, [worker_id, incarnation, self._removal_ms]))

    async def set_order(self, worker_id: str, order: Order | None, now: float) -> None:
        """Note what an operator wants of a worker; None, that he wants nothing any more, is remembered for an hour.

        `now` is the clock of the order's end.
        """
        life_ms = self._removal_ms if order is None else max(1, round((order.until - now) * 1000))
        await self._run(scripts.SET_ORDER, [self._keys.orders], [worker_id, life_ms, encode_order(order)])

    # Loads

    async def publish_load(self, load: ProcessLoad, now: float) -> None:
        """Publish this process's load for 5 s. `now` is the clock that its samples were taken on."""
        await self._run(scripts.PUBLISH_LOAD, [self._keys.loads], [load.process, self._load_ms, encode_load(load, now)])

    async def read_loads(self, now: float) -> Sequence[ProcessLoad]:
        """The load of every live process, this one's too; `taken_at` is on the caller's clock at `now`."""
        reply = await self._run(scripts.READ_LOADS, [self._keys.loads], [])
        server_ms, live, foreign = self._shape(reply, 3)
        self._count_foreign(foreign, "load")
        return self._decoded("load", live, lambda process, value: decode_load(process, value, int(server_ms), now))

    # Usage of tenants

    async def exchange_usage(self, usage: GatewayUsage) -> Sequence[GatewayUsage]:
        """Publish this gateway's usage for 5 s, and read that of every live gateway, this one's too."""
        arguments: Arguments = [usage.gateway, self._load_ms, "usage", encode_usage(usage)]
        _, live = self._shape(await self._run(scripts.EXCHANGE, [self._keys.usage], arguments), 2)
        return self._decoded("usage", live, decode_usage)

    # Marks

    async def exchange_marks(self, marks: GatewayMarks, now: float) -> Sequence[GatewayMarks]:
        """Publish this gateway's marks until the last is over, and read that of every live gateway, this one's too.

        `now` is the clock of their deadlines, and of those that are returned.
        """
        arguments: Arguments = [marks.gateway, life_of(marks, now), "marks", encode_marks(marks, now)]
        server_ms, live = self._shape(await self._run(scripts.EXCHANGE, [self._keys.marks], arguments), 2)
        return self._decoded("marks", live, lambda gateway, value: decode_marks(gateway, value, int(server_ms), now))

    # Leader and plan

    async def campaign(self, name: str, known_epoch: int) -> Election:
        """Lead, go on leading, or learn who does. known_epoch: the highest that the caller ever heard of."""
        arguments: Arguments = [name, known_epoch, round(LEADER_LEASE_S * 1000)]
        leader, epoch = self._shape(await self._run(scripts.CAMPAIGN, [self._keys.leader], arguments), 2)
        return Election(leader.decode("utf-8", "replace"), _number(epoch))

    async def resign(self, name: str, epoch: int) -> None:
        """Lead no longer, so that another may at once."""
        await self._run(scripts.RESIGN, [self._keys.leader], [name, epoch])

    async def publish_plan(self, name: str, place: Place, plan: bytes) -> bool:
        """Publish what the leader decided; False when it does not lead any more, or something later stands there."""
        keys = [self._keys.leader, self._keys.plan]
        return bool(await self._run(scripts.PUBLISH_PLAN, keys, [name, place.epoch, place.seq, plan]))

    async def read_plan(self) -> tuple[Place, bytes] | None:
        """What was published last; None when there is nothing, or nothing that can be used."""
        reply = await self._run(scripts.READ_PLAN, [self._keys.plan], [])
        if not reply:
            return None
        epoch, seq, plan = self._shape(reply, 3)
        try:
            return Place(_number(epoch), _number(seq)), plan
        except StoreUnavailable as error:
            self._skip("plan", "its place", str(error))
            return None

    async def close(self) -> None:
        await self._connections.close()

    # How

    async def _run(self, script: scripts.Script, keys: list[str], arguments: Arguments) -> Any:
        breaker = self._breaker
        if not breaker.admits(self._clock()):
            raise StoreUnavailable(f"the store is down: {breaker.last_error}")
        return await self._connections.run(script, keys, arguments, self._ended)

    def _ended(self, error: StoreUnavailable | None) -> None:
        if error is None:
            self._breaker.succeeded(self._clock())
        else:
            self._breaker.failed(str(error), self._clock())
            self._on_failure()

    def _shape(self, reply: Any, members: int) -> list[Any]:
        if not isinstance(reply, list) or len(reply) != members:
            raise StoreUnavailable("the store answered something else than was asked")
        return reply

    def _decoded(self, kind: str, flat: list[bytes], decode: Callable[[str, bytes], Value]) -> list[Value]:
        values = []
        for name, value in zip(flat[::2], flat[1::2], strict=False):
            try:
                values.append(decode(name.decode(), value))
            except (Malformed, UnicodeDecodeError) as error:
                self._skip(
                    kind, repr(name[:100]), str(error) if isinstance(error, Malformed) else "its key is not UTF-8"
                )
        return values

    def _count_foreign(self, keys: int, kind: str) -> None:
        if keys:
            self._skip(kind, "the whole key", "it is not of the type that warmset writes")

    def _skip(self, kind: str, name: str, why: str) -> None:
        self.malformed += 1
        if (kind, name) not in self._logged and len(self._logged) < MAX_LOGGED:
            self._logged.add((kind, name))
            log.warning("skipped a malformed %s in the store: %s", kind, why, extra={"entry": name})


def _number(value: bytes) -> int:
    """Of an epoch or a seq, as a script writes it."""
    if not value.isdigit() or not 0 < int(value) <= MAX_EPOCH:
        raise StoreUnavailable("the store answered a number that none of ours can be")
    return int(value)
