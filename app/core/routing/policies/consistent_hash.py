"""The same key to the same worker, with few keys moved when the pool changes."""

from bisect import bisect_right
from collections.abc import Iterator
from hashlib import blake2b

from app.core.fleet.reasons import ChoiceReason
from app.core.fleet.request import RequestFacts
from app.core.fleet.rng import Rng
from app.core.routing.order import two_choices
from app.core.routing.policy import Choice
from app.core.routing.pool import Pool
from app.core.routing.worker import WorkerState

POINTS_PER_WORKER = 160
"""Points on the ring per worker, as in ketama: shares differ by about 1/sqrt(160) = 8 % between workers."""


class ConsistentHash:
    """A hash ring over all members of the pool, walked past the ones that are not eligible (Karger 1997).

    The ring holds members, not eligible workers, so a worker that fails and comes back finds its keys again. Reads no
    load: one hot key is one hot worker. A request without a key goes to the less loaded of two drawn at random.
    """

    name = "consistent_hash"

    def __init__(self) -> None:
        self._rings: dict[str, _Ring] = {}

    def rank(self, request: RequestFacts, pool: Pool, rng: Rng, now: float) -> Iterator[Choice]:
        if request.key is None:
            for choice in two_choices(pool.eligible, rng, now):
                yield Choice(choice.worker, ChoiceReason.NO_KEY)
            return
        ring = self._rings.get(pool.name)
        if ring is None or (ring.members is not pool.members and ring.members != pool.members):
            ring = self._rings[pool.name] = _Ring(pool.members)
        for state in ring.walk(request.key):
            if pool.takes(state):
                yield Choice(state, ChoiceReason.KEY)


class _Ring:
    __slots__ = ("_hashes", "_owners", "members")

    def __init__(self, members: tuple[WorkerState, ...]) -> None:
        self.members = members
        points = sorted(
            (_hash(b"%s#%d" % (state.worker.id.encode(), point)), place)
            for place, state in enumerate(members)
            for point in range(POINTS_PER_WORKER)
        )
        self._hashes = [value for value, _ in points]
        self._owners = [members[place] for _, place in points]

    def walk(self, key: bytes) -> Iterator[WorkerState]:
        """Each member once, clockwise from the key."""
        start = bisect_right(self._hashes, _hash(key))
        seen: dict[str, None] = {}
        for step in range(len(self._owners)):
            state = self._owners[(start + step) % len(self._owners)]
            if state.worker.id not in seen:
                seen[state.worker.id] = None
                yield state


def _hash(value: bytes) -> int:
    return int.from_bytes(blake2b(value, digest_size=8).digest(), "big")
