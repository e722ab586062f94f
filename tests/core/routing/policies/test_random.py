from collections import Counter

from tests.core.script import Script


def test_every_worker_gets_its_share() -> None:
    script = Script("random")
    script.healthy("a", "b", "c", "d")
    counts = Counter(script.dispatched().worker.id for _ in range(2000))
    assert all(400 < count < 600 for count in counts.values()), counts
