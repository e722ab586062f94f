"""Counters, gauges and histograms with labels, and their Prometheus text as vLLM's client library prints it.

Own code because histograms here take many equal observations at once (a step hands every stream the same gap), and
because names, order and the `_created` gauges must come out as vLLM's do.
"""

import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence

Labels = tuple[tuple[str, str], ...]


def number(value: float) -> str:
    return repr(float(value)) if value != float("inf") else "+Inf"


def labelled(labels: Labels) -> str:
    """Label pairs in braces, sorted by name, which is the order in which the client library prints them."""
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in sorted(labels)) + "}"


def escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class Family:
    """One metric name with its help text; `kind` is its Prometheus type."""

    kind = "gauge"

    def __init__(self, name: str, text: str, series: Sequence[Labels]) -> None:
        self.name = name
        self.text = text
        self.created_s = time.time()
        self.values: dict[Labels, float] = dict.fromkeys(series, 0.0)

    def set(self, value: float, labels: Labels) -> None:
        self.values[labels] = value

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self.text}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in self.values.items():
            yield f"{self.name}{labelled(labels)} {number(value)}"

    def created_lines(self, name: str) -> Iterator[str]:
        yield f"# HELP {name}_created {self.text}"
        yield f"# TYPE {name}_created gauge"
        for labels in self.values:
            yield f"{name}_created{labelled(labels)} {number(self.created_s)}"


class Gauge(Family):
    pass


class Counter(Family):
    """Printed with the suffix `_total`."""

    kind = "counter"

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name}_total {self.text}"
        yield f"# TYPE {self.name}_total counter"
        for labels, value in self.values.items():
            yield f"{self.name}_total{labelled(labels)} {number(value)}"
        yield from self.created_lines(self.name)


class Histogram(Family):
    """One series; `bounds` without infinity."""

    kind = "histogram"

    def __init__(self, name: str, text: str, labels: Labels, bounds: Sequence[float]) -> None:
        super().__init__(name, text, (labels,))
        self._labels = labels
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += count
        self._sum += value * count

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self.text}"
        yield f"# TYPE {self.name} histogram"
        total = 0
        for bound, count in zip([*self._bounds, float("inf")], self._counts, strict=True):
            total += count
            yield f"{self.name}_bucket{labelled((*self._labels, ('le', number(bound))))} {number(total)}"
        yield f"{self.name}_count{labelled(self._labels)} {number(total)}"
        yield f"{self.name}_sum{labelled(self._labels)} {number(self._sum)}"
        yield from self.created_lines(self.name)
