"""Each worker in turn."""

from collections.abc import Iterator

from app.core.fleet.reasons import ChoiceReason
from app.core.fleet.request import RequestFacts
from app.core.fleet.rng import Rng
from app.core.routing.policy import Choice
from app.core.routing.pool import Pool


class RoundRobin:
    """Reads no signal. The turn is kept per model and survives changes of the pool, so nobody is starved by them."""

    name = "round_robin"

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}

    def rank(self, request: RequestFacts, pool: Pool, rng: Rng, now: float) -> Iterator[Choice]:
        turn = self._turns.get(pool.name, 0)
        self._turns[pool.name] = turn + 1
        workers = pool.eligible
        for step in range(len(workers)):
            yield Choice(workers[(turn + step) % len(workers)], ChoiceReason.TURN)
