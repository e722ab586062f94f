from collections import Counter

from app.core.fleet.events import HealthReported, WorkerGone
from app.core.fleet.reasons import ChoiceReason
from app.core.overload.marks import RAMP_S
from tests.core.script import Script

KEYS = [b"key-%d" % number for number in range(3000)]


def placement(script: Script) -> dict[bytes, str]:
    return {key: script.dispatched(key=key).worker.id for key in KEYS}


def test_a_key_stays_and_shares_are_even() -> None:
    script = Script("consistent_hash")
    script.healthy("a", "b", "c", "d")
    before = placement(script)
    assert placement(script) == before
    assert all(500 < count < 1000 for count in Counter(before.values()).values())


def test_only_the_keys_of_a_worker_that_left_move() -> None:
    script = Script("consistent_hash")
    script.healthy("a", "b", "c", "d")
    before = placement(script)
    script >> WorkerGone("b", "1")
    after = placement(script)
    assert {key for key in KEYS if before[key] != after[key]} == {key for key in KEYS if before[key] == "b"}


def test_a_worker_that_comes_back_finds_its_keys() -> None:
    script = Script("consistent_hash")
    script.healthy("a", "b", "c")
    before = placement(script)
    for _ in range(3):
        script >> HealthReported("a", "1", healthy=False)
    assert "a" not in placement(script).values()
    for _ in range(2):
        script >> HealthReported("a", "1", healthy=True)
    script.now += RAMP_S
    assert placement(script) == before


def test_the_same_under_any_hash_seed() -> None:
    # Python's own hash differs between processes; these values were made by another one.
    script = Script("consistent_hash")
    script.healthy("a", "b", "c")
    assert [script.dispatched(key=key).worker.id for key in KEYS[:8]] == ["c", "a", "b", "b", "b", "b", "c", "c"]


def test_without_a_key_it_goes_by_load() -> None:
    script = Script("consistent_hash")
    script.healthy("a", "b")
    script.sample("a", running=9)
    script.sample("b", running=0)
    dispatch = script.dispatched()
    assert dispatch.worker.id == "b"
    assert dispatch.reason is ChoiceReason.NO_KEY
