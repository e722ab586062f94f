"""Several processes, one exposition."""

from prometheus_client.parser import text_string_to_metric_families

from app.telemetry.merge import Family, MergedMetrics


def counter(value: float, model: str = "m") -> Family:
    return ["warmset_requests", "counter", "help", [["warmset_requests_total", [["model", model]], value]]]


def gauge(name: str, value: float) -> Family:
    return [name, "gauge", "help", [[name, [], value]]]


def values(merged: MergedMetrics) -> dict[str, float]:
    text = merged.exposition("")[0].decode()
    return {
        sample.name + "".join(f"[{value}]" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_counts_are_added_and_facts_are_the_control_processs_own() -> None:
    merged = MergedMetrics()
    own = [gauge("warmset_workers", 3), gauge("process_resident_memory_bytes", 1)]
    others = [
        [counter(2), counter(1, "n"), gauge("warmset_workers", 99), gauge("process_resident_memory_bytes", 10)],
        [counter(5), gauge("warmset_requests_in_flight", 4)],
        [gauge("warmset_requests_in_flight", 3)],
    ]
    merged.update(own, others)
    assert values(merged) == {
        "warmset_workers": 3,
        "process_resident_memory_bytes": 11,
        "warmset_requests_total[m]": 7,
        "warmset_requests_total[n]": 1,
        "warmset_requests_in_flight": 7,
    }


def test_the_start_is_the_first_ones() -> None:
    merged = MergedMetrics()
    merged.update([gauge("process_start_time_seconds", 50)], [[gauge("process_start_time_seconds", 70)]])
    assert values(merged) == {"process_start_time_seconds": 50}


def test_a_total_never_shrinks_when_a_process_is_replaced() -> None:
    merged = MergedMetrics()
    merged.update([], [[counter(5)], [counter(7)]])
    assert values(merged)["warmset_requests_total[m]"] == 12
    merged.retire([counter(7), gauge("warmset_requests_in_flight", 9)])
    merged.update([], [[counter(6)], [counter(0)]])
    assert values(merged) == {"warmset_requests_total[m]": 13}
    merged.retire([counter(6)])
    merged.update([], [[counter(1)]])
    assert values(merged) == {"warmset_requests_total[m]": 14}
