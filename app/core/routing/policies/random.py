"""Any worker, each with the same chance."""

from collections.abc import Iterator

from app.core.fleet.reasons import ChoiceReason
from app.core.fleet.request import RequestFacts
from app.core.fleet.rng import Rng
from app.core.routing.order import shuffled
from app.core.routing.policy import Choice
from app.core.routing.pool import Pool


class Random:
    """Reads no signal: the baseline that every other policy has to beat."""

    name = "random"

    def rank(self, request: RequestFacts, pool: Pool, rng: Rng, now: float) -> Iterator[Choice]:
        for state in shuffled(pool.eligible, rng):
            yield Choice(state, ChoiceReason.CHANCE)
