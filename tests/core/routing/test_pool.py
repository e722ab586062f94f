"""Load: the engine's word plus what we did since."""

from app.core.fleet.load import SAMPLE_FRESH_S
from tests.core.script import Script


def test_own_dispatches_since_the_sample_count_at_once() -> None:
    script = Script()
    script.healthy("a")
    script.sample("a", running=4, waiting=3)
    script.dispatched()
    assert script.load("a") == 8


def test_requests_in_the_sample_are_not_counted_twice_and_completions_are_taken_off() -> None:
    script = Script()
    script.healthy("a")
    first = script.dispatched()
    script.dispatched()
    script.sample("a", running=2, own=2)
    assert script.load("a") == 2
    script.finish(first.token)
    assert script.load("a") == 1


def test_never_below_our_own() -> None:
    script = Script()
    script.healthy("a")
    for _ in range(3):
        script.dispatched()
    script.sample("a", running=0, own=3)
    assert script.load("a") == 3


def test_a_stale_sample_is_unknown() -> None:
    script = Script()
    script.healthy("a")
    script.sample("a", running=40)
    assert script.load("a") == 40
    script.now += SAMPLE_FRESH_S + 1
    assert script.load("a") == 0


def test_an_older_sample_that_comes_late_is_dropped() -> None:
    script = Script()
    script.healthy("a")
    script.sample("a", running=7)
    script.sample("a", running=1, age=3.0)
    assert script.load("a") == 7
