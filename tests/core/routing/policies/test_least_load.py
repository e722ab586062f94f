from collections import Counter

from tests.core.script import Script


def test_the_least_loaded_of_all() -> None:
    script = Script("least_load")
    script.healthy("a", "b", "c")
    script.sample("a", running=5)
    script.sample("b", running=2)
    script.sample("c", running=9)
    assert script.dispatched().worker.id == "b"


def test_a_burst_between_two_samples_spreads() -> None:
    script = Script("least_load")
    script.healthy("a", "b", "c", "d")
    counts = Counter(script.dispatched().worker.id for _ in range(40))
    assert set(counts.values()) == {10}


def test_an_idle_pool_does_not_always_start_with_the_same() -> None:
    script = Script("least_load")
    script.healthy("a", "b", "c")
    first = set()
    for _ in range(40):
        dispatch = script.dispatched()
        first.add(dispatch.worker.id)
        script.finish(dispatch.token)
    assert first == {"a", "b", "c"}
