"""What a routing policy is."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from app.core.fleet.reasons import ChoiceReason
from app.core.fleet.request import RequestFacts
from app.core.fleet.rng import Rng
from app.core.routing.pool import Pool
from app.core.routing.worker import WorkerState


class Choice(NamedTuple):
    """One place of a ranking. `worker` is a state of the pool that the policy was shown."""

    worker: WorkerState
    reason: ChoiceReason


class Policy(Protocol):
    """Ranks the eligible workers of a pool for one request.

    A ranking is an iterator: the first choice must be cheap, the rest is worked out only when a worker could not be
    reached. It yields each eligible worker once, every one of them, best first. A policy may keep state of its own (a
    cursor, a ring), never state of a worker; it must not change what it is shown.
    """

    name: str

    def rank(self, request: RequestFacts, pool: Pool, rng: Rng, now: float) -> Iterator[Choice]: ...
