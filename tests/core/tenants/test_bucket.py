"""A rate, over any stretch of time and any way of asking."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.tenants.bucket import BURST_S, Bucket

STEPS = st.lists(st.tuples(st.floats(0, 30), st.booleans()), max_size=60)


@given(st.floats(0.01, 50), STEPS)
def test_never_more_than_the_rate_and_one_burst(rate: float, steps: list[tuple[float, bool]]) -> None:
    now, admitted = 100.0, 0
    bucket = Bucket(rate, now, least=1.0)
    for pause, asks in steps:
        now += pause
        if asks and bucket.level(now) >= 1:
            bucket.take(1, now)
            admitted += 1
        assert admitted <= rate * (now - 100) + max(1, rate * BURST_S) + 1e-6


@given(st.floats(0.1, 1000), st.floats(1, 1e6))
def test_who_overdrew_waits_exactly_as_long_as_told(rate: float, amount: float) -> None:
    bucket = Bucket(rate, 0.0)
    bucket.take(rate * BURST_S + amount, 0.0)
    wait = bucket.wait_s(1.0, 0.0)
    assert bucket.level(wait * 0.999) < 1.0
    assert bucket.level(wait) == pytest.approx(1.0, rel=1e-6, abs=1e-6)
    assert Bucket(rate, 0.0).wait_s(0, 5.0) == 0.0


def test_another_rate_keeps_what_fits() -> None:
    bucket = Bucket(2.0, 0.0)
    bucket.take(5, 0.0)
    bucket.set_rate(1.0, 0.0)
    assert bucket.level(0.0) == 10.0
    bucket.set_rate(4.0, 0.0)
    assert bucket.level(0.0) == 10.0, "a larger share is filled, not given"
    assert bucket.level(5.0) == 30.0
    assert bucket.full_in_s(5.0) == 2.5
    bucket.take(60, 5.0)
    bucket.set_rate(0.0, 5.0)
    assert bucket.wait_s(1.0, 5.0) == float("inf")


def test_a_small_rate_holds_one_whole_unit() -> None:
    bucket = Bucket(0.01, 0.0, least=1.0)
    bucket.take(1, 0.0)
    assert bucket.level(99.0) < 1
    assert bucket.level(1000.0) == 1
    assert bucket.level(900.0) == 1, "an earlier time is no time"
