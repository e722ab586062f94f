"""Whose turn it is: shares by class and tenant, measured in tokens, and nobody starves."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.fleet.priority import Priority
from app.core.fleet.request import RequestFacts
from app.core.overload.queue import REMEMBERED, Queue, Waiting

TENANTS = ("a", "b", "c")


def waiting(
    token: int, tenant: str = "a", priority: Priority = Priority.NORMAL, tokens: int = 1, until: float = 10.0
) -> Waiting:
    facts = RequestFacts(f"r{token}", "m", "/", tenant=tenant, tokens=tokens, priority=priority)
    return Waiting(token, facts, 0.0, until)


def filled(*those: Waiting) -> Queue:
    queue = Queue()
    for each in those:
        queue.put(each)
    return queue


def serve(queue: Queue) -> Waiting:
    first = next(queue.next())
    queue.served(first)
    return first


def test_who_comes_first_is_served_first() -> None:
    queue = filled(*(waiting(token) for token in (3, 1, 2)))
    assert [serve(queue).token for _ in range(3)] == [3, 1, 2]
    assert (len(queue), queue.tokens, list(queue.next())) == (0, 0, [])


def test_tenants_get_equal_shares_of_tokens_whatever_they_send() -> None:
    """a sends many short requests, b a few long ones."""
    queue = filled(
        *(waiting(token, "a", tokens=10) for token in range(1000)),
        *(waiting(token, "b", tokens=100) for token in range(1000, 1100)),
    )
    got: Counter[str] = Counter()
    for _ in range(550):
        served = serve(queue)
        got[served.facts.tenant] += served.facts.tokens
    assert got["a"] == pytest.approx(got["b"], abs=100)


def test_classes_get_shares_that_double_and_none_starves() -> None:
    queue = filled(
        *(waiting(100 * priority + place, priority=priority) for priority in Priority for place in range(99))
    )
    got = Counter(serve(queue).facts.priority for _ in range(90))
    assert [got[priority] for priority in Priority] == [6, 12, 24, 48]


def test_a_higher_class_goes_first_where_turns_are_equal() -> None:
    queue = filled(waiting(1, priority=Priority.LOW), waiting(2, priority=Priority.CRITICAL))
    assert serve(queue).token == 2


def test_who_comes_later_saves_nothing_up() -> None:
    queue = filled(*(waiting(token, "a") for token in range(100)))
    for _ in range(50):
        serve(queue)
    for token in range(100, 200):
        queue.put(waiting(token, "b"))
    assert Counter(serve(queue).facts.tenant for _ in range(20)) == {"a": 10, "b": 10}


def test_who_leaves_and_comes_back_at_once_gains_nothing() -> None:
    """A tenant that has only ever one request waiting has no turn more than one that has many."""
    queue = filled(*(waiting(token, "a") for token in range(100)), waiting(1000, "b"))
    got: Counter[str] = Counter()
    for token in range(1001, 1041):
        served = serve(queue)
        got[served.facts.tenant] += 1
        if served.facts.tenant == "b":
            queue.put(waiting(token, "b"))
    assert got == {"a": 20, "b": 20}


def test_those_whose_time_is_over_are_found_once() -> None:
    queue = filled(waiting(1, until=5.0), waiting(2, until=3.0), waiting(3, until=7.0))
    queue.remove(1)
    assert [each.token for each in queue.expired(6.0)] == [2]
    assert list(queue.expired(6.0)) == []
    assert [each.token for each in queue.expired(7.0)] == [3]


@pytest.mark.parametrize(
    ("priority", "tenant", "yields"),
    [
        (Priority.LOW, "b", None),
        (Priority.NORMAL, "a", None),
        (Priority.NORMAL, "b", 3),
        (Priority.HIGH, "a", 3),
        (Priority.CRITICAL, "a", 3),
    ],
)
def test_who_makes_room(priority: Priority, tenant: str, yields: int | None) -> None:
    """The newest of who has the most of the lowest class, for a higher one or for a tenant that has less."""
    queue = filled(
        *(waiting(token) for token in (1, 2, 3)),
        waiting(4, "c"),
        *(waiting(t, "x", Priority.HIGH) for t in range(9, 20)),
    )
    found = queue.yields_to(RequestFacts("r", "m", "/", tenant=tenant, priority=priority))
    assert (found.token if found else None) == yields


def test_an_empty_queue_asks_nobody_to_make_room() -> None:
    assert Queue().yields_to(RequestFacts("r", "m", "/")) is None


STEP = st.tuples(st.sampled_from(["put", "serve", "remove"]), st.sampled_from(TENANTS), st.sampled_from(list(Priority)))


@given(st.lists(STEP, max_size=80), st.randoms(use_true_random=False))
def test_what_is_counted_is_what_waits(steps: list[tuple[str, str, Priority]], chance: random.Random) -> None:
    queue, there = Queue(), {}
    for token, (step, tenant, priority) in enumerate(steps):
        if step == "put":
            there[token] = waiting(token, tenant, priority, chance.randint(1, 9))
            queue.put(there[token])
        elif step == "serve" and there:
            del there[serve(queue).token]
        elif step == "remove" and there:
            gone = chance.choice(sorted(there))
            assert queue.remove(gone) is there.pop(gone)
            assert queue.remove(gone) is None
        assert len(queue) == len(there)
        assert queue.tokens == sum(each.facts.tokens for each in there.values())
        assert queue.counts() == Counter(each.facts.priority for each in there.values())
        assert sum(queue.lanes.values()) == len(there)
        firsts = {(each.facts.priority, each.facts.tenant) for each in there.values()}
        assert {(each.facts.priority, each.facts.tenant) for each in queue.next()} == firsts


def test_tenants_that_come_and_go_leave_nothing() -> None:
    queue = filled(waiting(-1, "stays", tokens=1_000_000))
    for token in range(5000):
        queue.put(waiting(token, f"t{token}", tokens=3))
        queue.served(next(each for each in queue.next() if each.token == token))
    assert len(queue._classes[Priority.NORMAL].turns._finish) <= 2 * REMEMBERED
