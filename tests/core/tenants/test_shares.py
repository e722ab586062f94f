"""What is divided is never more than there is, and nobody who could be served is left without."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.fleet.tenant import Limits
from app.core.tenants.shares import FLOOR, even_share_of, rate_shares, shares_of, whole_shares

AMOUNT = st.floats(0, 1e9)
COUNTS = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=40)


@given(st.floats(0.01, 1e9), st.lists(AMOUNT, min_size=1, max_size=40))
def test_rates_add_up_to_the_limit(limit: float, demand: list[float]) -> None:
    shares = rate_shares(limit, demand)
    assert sum(shares) == pytest.approx(limit)
    assert min(shares) >= limit * FLOOR / len(demand) * (1 - 1e-9)


@given(st.integers(1, 2**40), COUNTS)
def test_places_add_up_to_the_limit_and_nobody_loses_what_it_holds(limit: int, rows: list[tuple[int, int]]) -> None:
    held, wanted = [row[0] for row in rows], [row[1] for row in rows]
    shares = whole_shares(limit, held, wanted)
    assert sum(shares) == limit
    assert min(shares) >= 0
    if sum(held) <= limit:
        assert all(share >= have for share, have in zip(shares, held, strict=True))


@given(st.integers(1, 1000), st.integers(1, 50))
def test_even_shares_add_up_to_the_limit(limit: int, parts: int) -> None:
    limits = Limits(limit, limit / 3, limit, limit)
    shares = [even_share_of(limits, parts, place) for place in range(parts)]
    requests, tokens, places, sizes = zip(*shares, strict=True)
    assert sum(requests) == pytest.approx(limit)
    assert sum(tokens) == pytest.approx(limit / 3)
    assert sum(places) == sum(sizes) == limit
    assert max(places) - min(places) <= 1


def test_demand_moves_a_share() -> None:
    assert rate_shares(100, [0, 0]) == [50, 50]
    assert rate_shares(100, [30, 0]) == pytest.approx([95, 5])
    assert whole_shares(10, [0, 0], [0, 0]) == [5, 5]
    assert whole_shares(10, [4, 0], [8, 0]) == [10, 0]
    assert whole_shares(10, [4, 0], [4, 4]) == [4, 6]
    assert whole_shares(1, [0, 1], [5, 1]) == [0, 1], "what runs is not taken away"
    assert whole_shares(2, [2, 2], [9, 9]) == [1, 1]


def test_what_has_no_limit_has_no_share() -> None:
    row = (1.0, 5.0, 1, 2, 100, 100)
    assert shares_of(Limits(tokens_per_minute=60), [row, row]) == [(None, 30, None, None)] * 2
    assert shares_of(Limits(concurrency=4, in_flight_bytes=201), [row, row]) == [
        (None, None, 2, 101),
        (None, None, 2, 100),
    ]
    assert even_share_of(Limits(), 3, 0) == (None, None, None, None)
