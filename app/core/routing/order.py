"""Orders that several policies share."""

from collections.abc import Iterator, Sequence

from app.core.fleet.reasons import ChoiceReason
from app.core.fleet.rng import Rng
from app.core.routing.policy import Choice
from app.core.routing.worker import WorkerState


def shuffled(workers: Sequence[WorkerState], rng: Rng) -> Iterator[WorkerState]:
    """The workers in random order, each draw made only when it is asked for (Fisher-Yates)."""
    rest = list(workers)
    for last in range(len(rest) - 1, -1, -1):
        place = rng.randrange(last + 1)
        rest[place], rest[last] = rest[last], rest[place]
        yield rest[last]


def by_load(workers: Sequence[WorkerState], rng: Rng, now: float) -> Iterator[WorkerState]:
    """The workers by load, equal loads in random order: a fixed order would send every idle moment to the first.

    The first is found by looking at each once; only who goes on has the rest sorted.
    """
    loads = [state.load(now) for state in workers]
    least = min(loads, default=0)
    ties = [state for state, load in zip(workers, loads, strict=True) if load == least]
    if not ties:
        return
    first = ties[rng.randrange(len(ties))]
    yield first
    rest = [state for state in workers if state is not first]
    yield from sorted(shuffled(rest, rng), key=lambda state: state.load(now))


def two_choices(workers: Sequence[WorkerState], rng: Rng, now: float) -> Iterator[Choice]:
    """The less loaded of two drawn at random, then the other, then the rest by load.

    Two random choices keep the longest queue near log log n while looking at two workers only (Mitzenmacher 2001), and
    spread better than the least loaded of all when what is known of load is stale.
    """
    count = len(workers)
    if count == 1:
        yield Choice(workers[0], ChoiceReason.ONLY_CANDIDATE)
        return
    one = rng.randrange(count)
    other = rng.randrange(count - 1)
    if other >= one:
        other += 1
    first, second = workers[one], workers[other]
    first_load, second_load = first.load(now), second.load(now)
    if second_load < first_load:
        first, second = second, first
    reason = ChoiceReason.EQUAL_LOAD if first_load == second_load else ChoiceReason.LOWER_LOAD
    yield Choice(first, reason)
    yield Choice(second, reason)
    rest = [state for state in workers if state is not first and state is not second]
    for state in by_load(rest, rng, now):
        yield Choice(state, ChoiceReason.LOWER_LOAD)
