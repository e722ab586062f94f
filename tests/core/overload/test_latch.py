"""Overload by the engine's own numbers."""

from app.core.fleet.load import SAMPLE_FRESH_S, LoadSample
from app.core.overload.latch import OverloadLatch, Thresholds


def sample(at: float, waiting: int = 0, kv: float | None = None) -> LoadSample:
    return LoadSample(at, 1, waiting, 0, kv)


def test_trips_at_the_high_mark_and_frees_at_the_low_one_twice() -> None:
    latch = OverloadLatch(Thresholds(waiting=10))
    assert not latch.sample(sample(0, 9))
    assert not latch.holds(0)
    latch.sample(sample(1, 10))
    assert latch.holds(1)
    for at, waiting in ((2, 6), (3, 5), (4, 6), (5, 5)):
        latch.sample(sample(at, waiting))
        assert latch.holds(at)
    assert latch.sample(sample(6, 5))
    assert not latch.holds(6)


def test_blocks_in_use_are_a_signal_of_their_own() -> None:
    latch = OverloadLatch(Thresholds(waiting=10, kv_usage=0.9))
    latch.sample(sample(0, 0, 0.9))
    assert latch.holds(0)
    latch.sample(sample(1, 20, 0.7))
    latch.sample(sample(2, 20, 0.7))
    assert latch.holds(2), "the queue holds it now"
    assert latch.sample(sample(3, 0, 0.8))
    assert not latch.sample(sample(4, 0, 0.85))
    assert not latch.holds(4)


def test_a_signal_that_falls_silent_neither_holds_nor_trips() -> None:
    """Dynamo#13834: one of two signals stopped, and its latch stayed on."""
    latch = OverloadLatch(Thresholds(waiting=10, kv_usage=0.9))
    latch.sample(sample(0, 0, 0.99))
    for at in range(1, 5):
        latch.sample(sample(at, 0, None))
    assert latch.holds(SAMPLE_FRESH_S)
    assert latch.frees_at(4.0) == SAMPLE_FRESH_S
    assert not latch.holds(SAMPLE_FRESH_S + 0.1)
    assert latch.frees_at(SAMPLE_FRESH_S + 0.1) == float("inf")
    latch.sample(sample(20, 0, 0.85))
    assert not latch.holds(20), "what held it before it was silent is not known to hold still"


def test_zero_switches_a_signal_off() -> None:
    latch = OverloadLatch(Thresholds(waiting=0, kv_usage=0))
    assert latch.sample(sample(0, 10_000, 1.0)), "and then nothing of it speaks against the worker"
    assert not latch.holds(0)
