"""Who sends requests: tenants, the keys that open the gateway for them, and how much each may use. Values only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from app.core.fleet.priority import Priority

DEFAULT_TENANT = "default"
"""Of requests that need no key, and of keys that are set without a keys file."""


class Plane(StrEnum):
    """What a key opens."""

    DATA = "data"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a tenant, or one key of it, may use of all gateways together. None: as much as it likes.

    tokens_per_minute: prompt and completion, as the engine counted them, charged when an answer ended.
    concurrency: requests under way. in_flight_bytes: of the bodies of requests under way.
    """

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    concurrency: int | None = None
    in_flight_bytes: int | None = None


UNLIMITED = Limits()


@dataclass(frozen=True, slots=True)
class Grant:
    """What one key allows. The key itself is nowhere, only its SHA-256 (`digest`).

    name: for people, logs and status. models: glob patterns of names that it may ask for.
    not_before, expires: seconds since the epoch, the former included, the latter not; None: no such bound.
    priority: the highest that its requests may have.
    """

    name: str
    tenant: str
    digest: bytes
    models: Sequence[str] = ("*",)
    planes: Sequence[Plane] = (Plane.DATA,)
    not_before: float | None = None
    expires: float | None = None
    limits: Limits = UNLIMITED
    priority: Priority = Priority.CRITICAL


@dataclass(frozen=True, slots=True)
class KeySet:
    """A keys file: the keys, and the limits of tenants that have any."""

    grants: Sequence[Grant] = ()
    tenants: Mapping[str, Limits] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GatewayUsage:
    """What one gateway's processes recently asked of each limited scope. A value of the store.

    processes: how many there are. scopes: hashed scope -> one row for each process, see `core.tenants.demand`.
    """

    gateway: str
    processes: int
    scopes: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)
