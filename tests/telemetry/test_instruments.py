"""Counting, and turning counts into families."""

from app.telemetry.instruments import Counter, Gauge, Histogram


def values(family) -> dict[tuple[str, str], float]:
    return {(sample.name, ",".join(sample.labels.values())): sample.value for sample in family.samples}


def test_counter() -> None:
    counter = Counter("x_total", "Help.", ("a",))
    assert values(counter.family()) == {}
    counter.add(("one",))
    counter.add(("one",), 2.5)
    counter.add(("two",))
    assert values(counter.family()) == {("warmset_x_total", "one"): 3.5, ("warmset_x_total", "two"): 1}
    counter.keep({"two": None})
    assert values(counter.family()) == {("warmset_x_total", "two"): 1}
    bare = Counter("y_total", "Help.")
    assert values(bare.family()) == {("warmset_y_total", ""): 0}
    bare.add()
    assert values(bare.family()) == {("warmset_y_total", ""): 1}


def test_gauge_is_read_when_asked() -> None:
    now = {("w",): 1.0}
    gauge = Gauge("g", "Help.", ("worker",), now.items)
    assert values(gauge.family()) == {("warmset_g", "w"): 1.0}
    now.clear()
    assert values(gauge.family()) == {}


def test_histogram_bounds_belong_below() -> None:
    histogram = Histogram("h_seconds", "Help.", (), (0.1, 1))
    for value in (0.1, 0.10001, 1.0, 1.5):
        histogram.observe((), value)
    found = {sample.labels.get("le", sample.name): sample.value for sample in histogram.family().samples}
    total = found.pop("warmset_h_seconds_sum")
    assert found == {"0.1": 1, "1.0": 3, "+Inf": 4, "warmset_h_seconds_count": 4}
    assert round(total, 9) == 2.70001
    histogram.merge((), [1, 0, 2], 5.0)
    found = {sample.labels.get("le", sample.name): sample.value for sample in histogram.family().samples}
    assert (found["0.1"], found["1.0"], found["+Inf"]) == (2, 4, 7)
