"""What the router is told. Each is a value; together with the seed they determine every decision."""

from dataclasses import dataclass

from app.core.fleet.load import LoadSample
from app.core.fleet.order import Order
from app.core.fleet.reasons import Failure, MarkKind, Outcome
from app.core.fleet.request import RequestFacts
from app.core.fleet.worker import Worker


@dataclass(slots=True)
class RequestArrived:
    facts: RequestFacts


@dataclass(slots=True)
class DispatchAccepted:
    """The head of the worker's answer is there. A good one confirms the reservation; one that says that the worker
    takes no more may lead elsewhere: then the verdict is another Dispatch, and this answer is to be dropped.

    retry_after_s: what its Retry-After says, None without one. is_engines_own: it is JSON, so no proxy's.
    """

    token: int
    status: int = 200
    retry_after_s: float | None = None
    is_engines_own: bool = False


@dataclass(slots=True)
class AnswerBegan:
    """The first byte of a good answer came."""

    token: int


@dataclass(slots=True)
class DispatchFailed:
    """The worker did not begin to answer: the reservation is released, and the next of the ranking may be tried."""

    token: int
    failure: Failure


@dataclass(slots=True)
class RequestFinished:
    """The answer ended, or nobody wants it any more: whatever is still reserved under the token is released."""

    token: int
    outcome: Outcome


@dataclass(slots=True)
class RequestLeft:
    """The client of a request that waits has gone."""

    token: int


@dataclass(slots=True)
class TimePassed:
    """Nothing happened. Told now and then while requests wait: marks end by themselves, and so does patience."""


@dataclass(slots=True)
class WorkerSeen:
    """A worker is registered, or what is known of it (models, version, incarnation) changed."""

    worker: Worker


@dataclass(slots=True)
class WorkerGone:
    """A worker is deregistered. With an incarnation that is not the present one it says nothing."""

    worker_id: str
    incarnation: str


@dataclass(slots=True)
class WorkerOrdered:
    """What an operator wants of a worker, None for nothing any more. Holds for whoever answers there: a restart does
    not end it."""

    worker_id: str
    order: Order | None


@dataclass(slots=True)
class HealthReported:
    """A probe of `/health` ended. `reachable` is False when not even a connection could be made."""

    worker_id: str
    incarnation: str
    healthy: bool
    reachable: bool = True


@dataclass(slots=True)
class LoadSampled:
    worker_id: str
    incarnation: str
    sample: LoadSample


@dataclass(slots=True)
class MarkTold:
    """A router's mark against a worker, as the others are told of it.

    reporter: the router. number: tells its marks apart, rising. after_seq: highest observation that it had seen. until:
    monotonic seconds of this machine.
    """

    worker_id: str
    incarnation: str
    reporter: str
    kind: MarkKind
    number: int
    after_seq: int
    until: float


Event = (
    RequestArrived
    | DispatchAccepted
    | AnswerBegan
    | DispatchFailed
    | RequestFinished
    | RequestLeft
    | TimePassed
    | WorkerSeen
    | WorkerGone
    | WorkerOrdered
    | HealthReported
    | LoadSampled
    | MarkTold
)
