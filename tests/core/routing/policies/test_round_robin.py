from tests.core.script import Script


def test_each_in_turn_per_model() -> None:
    script = Script("round_robin")
    script.healthy("a", "b", "c")
    script.healthy("x", "y", model="n")
    order = [script.dispatched("m").worker.id for _ in range(6)]
    assert order == ["a", "b", "c", "a", "b", "c"]
    assert [script.dispatched("n").worker.id for _ in range(2)] == ["x", "y"]
