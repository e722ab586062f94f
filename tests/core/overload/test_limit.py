"""What a worker takes at a time, learnt from its refusals."""

import pytest

from app.core.overload.limit import FORGOTTEN_S, NO_LIMIT, Limit


def test_without_a_refusal_there_is_none() -> None:
    limit = Limit()
    limit.accepted(1000, 0.0)
    assert limit.most == NO_LIMIT


def test_it_is_a_little_less_than_what_was_under_way() -> None:
    limit = Limit()
    assert limit.refused(20, 0.0)
    assert limit.most == pytest.approx(18)
    assert limit.refused(10, 0.0)
    assert limit.most == pytest.approx(9), "by what is under way, not by how often it refuses"


@pytest.mark.parametrize("others", [0, 1])
def test_a_worker_that_refuses_with_nothing_to_do_is_not_full(others: int) -> None:
    limit = Limit()
    assert not limit.refused(others, 0.0)
    assert limit.most == NO_LIMIT


def test_it_grows_by_one_for_each_round_of_requests_and_only_while_it_is_used() -> None:
    limit = Limit()
    limit.refused(20, 0.0)
    for _ in range(18):
        limit.accepted(18, 1.0)
    assert limit.most == pytest.approx(19, abs=0.1)
    for _ in range(100):
        limit.accepted(5, 1.0)
    assert limit.most == pytest.approx(19, abs=0.1)


def test_it_is_forgotten_after_a_while() -> None:
    limit = Limit()
    limit.refused(20, 0.0)
    limit.accepted(3, FORGOTTEN_S)
    assert limit.most < 20
    limit.accepted(3, FORGOTTEN_S + 0.1)
    assert limit.most == NO_LIMIT
