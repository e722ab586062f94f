"""The less loaded of two workers drawn at random."""

from collections.abc import Iterator

from app.core.fleet.request import RequestFacts
from app.core.fleet.rng import Rng
from app.core.routing.order import two_choices
from app.core.routing.policy import Choice
from app.core.routing.pool import Pool


class PowerOfTwo:
    """Reads load (engine sample plus own dispatches since). Without samples it compares own in-flight requests."""

    name = "power_of_two"

    def rank(self, request: RequestFacts, pool: Pool, rng: Rng, now: float) -> Iterator[Choice]:
        return two_choices(pool.eligible, rng, now)
