"""What replicas tell each other of workers: registrations, removals, and each process's load. Values of the store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from app.core.fleet.events import MarkTold
from app.core.fleet.load import LoadSample
from app.core.fleet.order import Order


class WorkerSource(StrEnum):
    """Who registered a worker."""

    CONFIG = "config"
    """Named in the configuration of a running process. Leased: gone when no process renews it."""
    ADMIN = "admin"
    """Added through the admin API. Stays until it is deleted there."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A worker's place in the registry. `incarnation` is made anew by each registration."""

    id: str
    url: str
    incarnation: str
    source: WorkerSource


@dataclass(frozen=True, slots=True)
class Registry:
    """What the store holds of workers: those registered, and what operators said of them.

    removed: ids whose configured entry an operator deleted. orders: what one wants of a worker; None that he wants
    nothing any more. Without an entry nobody has said anything, or it was lost.
    """

    registrations: Sequence[Registration] = ()
    removed: frozenset[str] = frozenset()
    orders: Mapping[str, Order | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GatewayMarks:
    """The marks that the processes of one gateway made and that are not over."""

    gateway: str
    marks: Sequence[MarkTold] = ()


@dataclass(frozen=True, slots=True)
class ProcessLoad:
    """What one process of the gateway has in flight, and the newest samples that it took.

    in_flight: worker id -> requests. samples: worker id -> sample; `taken_at` counts on the publisher's clock, so a
    reader sees each sample with its age instead.
    """

    process: str
    in_flight: dict[str, int] = field(default_factory=dict)
    samples: dict[str, LoadSample] = field(default_factory=dict)
