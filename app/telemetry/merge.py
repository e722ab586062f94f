"""Metrics of several processes as one exposition.

What counts (counters, histograms, gauges of what a process holds) is added up. What is a fact about the fleet or the
store is the control process's alone, since it is the one that observes. A process that ended keeps its counts in the
sum: a total that shrank would look like a restart, and count everything twice.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from app.telemetry.exposition import encode

FACTS = frozenset(
    (
        "warmset_worker_health",
        "warmset_worker_load",
        "warmset_worker_kv_usage_ratio",
        "warmset_worker_load_age_seconds",
        "warmset_workers",
        "warmset_store_up",
        "warmset_store_errors",
        "warmset_build_info",
    )
)
"""Families that the control process tells alone."""

COMBINE = {"process_start_time_seconds": min, "process_max_fds": max}
"""Families of which a sum says nothing."""

Family = list[Any]
"""[name, type, help, [[sample name, [[label, value], ...], number], ...]]: a family as JSON."""


def snapshot(registry: CollectorRegistry) -> list[Family]:
    """All families of a process, as plain data."""
    return [
        [
            metric.name,
            metric.type,
            metric.documentation,
            [[sample.name, sorted(sample.labels.items()), sample.value] for sample in metric.samples],
        ]
        for metric in registry.collect()
    ]


class MergedMetrics:
    """The families of all processes, as a collector of a registry of its own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._retired: list[Family] = []
        self._merged: dict[str, _Sum] = {}

    def retire(self, families: Iterable[Family]) -> None:
        """A process is gone: keep what it counted."""
        merged: dict[str, _Sum] = {}
        for family in [*self._retired, *families]:
            if family[1] in ("counter", "histogram") and family[0] not in FACTS and not family[0].startswith("process"):
                _add(merged, family)
        self._retired = [total.plain() for total in merged.values()]

    def update(self, own: Iterable[Family], others: Iterable[Iterable[Family]]) -> None:
        """Take the present state: the control process's own families, and those of each serving process."""
        merged: dict[str, _Sum] = {}
        for family in own:
            _add(merged, family)
        for families in (*others, self._retired):
            for family in families:
                if family[0] not in FACTS:
                    _add(merged, family)
        self._merged = merged

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """In the format that an Accept header asks for, and its content type."""
        return encode(self._registry, accept)

    def collect(self) -> Iterator[Metric]:
        for total in self._merged.values():
            yield total.metric()


class _Sum:
    """One family in the making."""

    def __init__(self, name: str, kind: str, text: str) -> None:
        self._name = name
        self._kind = kind
        self._text = text
        self._values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}

    def add(self, samples: Iterable[list[Any]]) -> None:
        combine = COMBINE.get(self._name, float.__add__)
        values = self._values
        for name, labels, value in samples:
            key = (name, tuple((label, text) for label, text in labels))
            values[key] = combine(values[key], float(value)) if key in values else float(value)

    def plain(self) -> Family:
        return [
            self._name,
            self._kind,
            self._text,
            [[name, list(labels), value] for (name, labels), value in self._values.items()],
        ]

    def metric(self) -> Metric:
        metric = Metric(self._name, self._text, self._kind)
        for (name, labels), value in self._values.items():
            metric.add_sample(name, dict(labels), value)
        return metric


def _add(merged: dict[str, _Sum], family: Family) -> None:
    name, kind, text, samples = family
    total = merged.get(name)
    if total is None:
        total = merged[name] = _Sum(name, kind, text)
    total.add(samples)
