"""What every policy promises, whatever it is."""

import random

import pytest

from app.core.fleet.request import RequestFacts
from app.core.fleet.worker import Worker
from app.core.overload.settings import OverloadSettings
from app.core.routing.policies import DEFAULT_POLICY, POLICIES, make_policy
from app.core.routing.policy import Policy
from app.core.routing.pool import Pool
from app.core.routing.worker import WorkerState


def states(count: int, unhealthy: tuple[int, ...] = ()) -> tuple[WorkerState, ...]:
    made = []
    for number in range(count):
        state = WorkerState(Worker(f"w{number:03}", f"http://w{number}", "1", {"m": b"{}"}), OverloadSettings())
        if number not in unhealthy:
            state.health.probe_succeeded()
        made.append(state)
    return tuple(made)


def facts(key: bytes | None = None) -> RequestFacts:
    return RequestFacts("r", "m", "/v1/chat/completions", key)


@pytest.fixture(params=POLICIES, ids=lambda policy: policy.name)
def policy(request: pytest.FixtureRequest) -> Policy:
    made: Policy = make_policy(request.param.name)
    return made


@pytest.mark.parametrize("count", [1, 2, 3, 40])
@pytest.mark.parametrize("key", [None, b"k"])
def test_ranks_every_eligible_worker_once(policy: Policy, count: int, key: bytes | None) -> None:
    pool = Pool("m", states(count), 0.0)
    for seed in range(5):
        ranked = [choice.worker for choice in policy.rank(facts(key), pool, random.Random(seed), 0.0)]
        assert sorted(state.worker.id for state in ranked) == [state.worker.id for state in pool.members]


@pytest.mark.parametrize("key", [None, b"k"])
def test_ranks_no_worker_that_is_not_eligible(policy: Policy, key: bytes | None) -> None:
    pool = Pool("m", states(6, unhealthy=(0, 3)), 0.0)
    ranked = [choice.worker for choice in policy.rank(facts(key), pool, random.Random(1), 0.0)]
    assert sorted(state.worker.id for state in ranked) == ["w001", "w002", "w004", "w005"]


@pytest.mark.parametrize("key", [None, b"k"])
def test_ranks_everybody_in_panic(policy: Policy, key: bytes | None) -> None:
    pool = Pool("m", states(3, unhealthy=(0, 1, 2)), 0.0)
    assert pool.panic
    assert len(list(policy.rank(facts(key), pool, random.Random(1), 0.0))) == 3


def test_same_chance_same_ranking(policy: Policy) -> None:
    def ranking() -> list[str]:
        fresh = make_policy(policy.name)
        pool = Pool("m", states(9), 0.0)
        rng = random.Random(7)
        return [
            choice.worker.worker.id
            for number in range(20)
            for choice in fresh.rank(facts(b"%d" % number), pool, rng, 0.0)
        ]

    assert ranking() == ranking()


def test_changes_nothing_that_it_is_shown(policy: Policy) -> None:
    pool = Pool("m", states(4), 0.0)
    list(policy.rank(facts(b"k"), pool, random.Random(1), 0.0))
    assert all(state.in_flight == 0 and state.sample is None and pool.takes(state) for state in pool.members)


def test_the_default_is_one_of_them() -> None:
    assert DEFAULT_POLICY in [policy.name for policy in POLICIES]
    assert len({policy.name for policy in POLICIES}) == len(POLICIES)
