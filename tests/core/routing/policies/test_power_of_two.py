from collections import Counter

from app.core.fleet.reasons import ChoiceReason
from tests.core.script import Script


def test_the_less_loaded_of_two() -> None:
    script = Script("power_of_two")
    script.healthy("a", "b")
    script.sample("a", running=9)
    script.sample("b", running=1)
    dispatch = script.dispatched()
    assert dispatch.worker.id == "b"
    assert dispatch.reason is ChoiceReason.LOWER_LOAD


def test_the_most_loaded_gets_nothing_while_others_are_below_it() -> None:
    script = Script("power_of_two")
    script.healthy("a", "b", "c", "d")
    counts: Counter[str] = Counter()
    for _ in range(100):
        script.sample("a", running=100)
        counts[script.dispatched().worker.id] += 1
    assert "a" not in counts
    assert max(counts.values()) - min(counts.values()) < 20


def test_one_worker_is_the_only_candidate() -> None:
    script = Script("power_of_two")
    script.healthy("a")
    assert script.dispatched().reason is ChoiceReason.ONLY_CANDIDATE
