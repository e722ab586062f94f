"""The least loaded worker of the pool."""

from collections.abc import Iterator

from app.core.fleet.reasons import ChoiceReason
from app.core.fleet.request import RequestFacts
from app.core.fleet.rng import Rng
from app.core.routing.order import by_load
from app.core.routing.policy import Choice
from app.core.routing.pool import Pool


class LeastLoad:
    """Looks at every worker, so it costs in proportion to the pool; with several routers and stale samples it herds."""

    name = "least_load"

    def rank(self, request: RequestFacts, pool: Pool, rng: Rng, now: float) -> Iterator[Choice]:
        reason = ChoiceReason.ONLY_CANDIDATE if len(pool.eligible) == 1 else ChoiceReason.LOWER_LOAD
        for state in by_load(pool.eligible, rng, now):
            yield Choice(state, reason)
