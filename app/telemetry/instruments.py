"""Counters, gauges and histograms that cost one dict access to count in, and are turned into families when scraped.

prometheus_client's own take a lock per count and cannot take over a histogram that was filled elsewhere, as the gaps of
a stream are. These belong to one event loop; a scrape may come from another thread, since it copies before it walks.
"""

from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

PREFIX = "warmset_"

Labels = tuple[str, ...]


class Counter:
    """A number per label values that only grows. Without labels it is there, as 0, from the start."""

    __slots__ = ("_help", "_labels", "_name", "_values")

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self._name = PREFIX + name
        self._help = text
        self._labels = labels
        self._values: dict[Labels, float] = {} if labels else {(): 0.0}

    def add(self, labels: Labels = (), amount: float = 1.0) -> None:
        values = self._values
        values[labels] = values.get(labels, 0.0) + amount

    def keep(self, first_label_values: Container[str]) -> None:
        """Forget every series whose first label has another value than these."""
        for labels in list(self._values):
            if labels[0] not in first_label_values:
                del self._values[labels]

    def family(self) -> Metric:
        family = CounterMetricFamily(self._name, self._help, labels=self._labels)
        for labels, value in list(self._values.items()):
            family.add_metric(labels, value)
        return family


class Gauge:
    """Values that are read when scraped. `read` gives (label values, value); what it leaves out has no series."""

    __slots__ = ("_help", "_labels", "_name", "_read")

    def __init__(
        self, name: str, text: str, labels: Sequence[str], read: Callable[[], Iterable[tuple[Labels, float]]]
    ) -> None:
        self._name = PREFIX + name
        self._help = text
        self._labels = labels
        self._read = read

    def family(self) -> Metric:
        family = GaugeMetricFamily(self._name, self._help, labels=self._labels)
        for labels, value in self._read():
            family.add_metric(labels, value)
        return family


class Histogram:
    """Counts by class. A value equal to an upper bound belongs below it, as Prometheus' `le` says."""

    __slots__ = ("_help", "_labels", "_name", "_series", "bounds")

    def __init__(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        self._name = PREFIX + name
        self._help = text
        self._labels = labels
        self._series: dict[Labels, _Series] = {}
        self.bounds = tuple(map(float, bounds))

    def observe(self, labels: Labels, value: float) -> None:
        series = self._at(labels)
        series.counts[bisect_left(self.bounds, value)] += 1
        series.total += value

    def merge(self, labels: Labels, counts: Sequence[int], total: float) -> None:
        """Take over values that were counted elsewhere by the same bounds; the last count is of those above all."""
        series = self._at(labels)
        mine = series.counts
        for place, count in enumerate(counts):
            if count:
                mine[place] += count
        series.total += total

    def family(self) -> Metric:
        family = HistogramMetricFamily(self._name, self._help, labels=self._labels)
        for labels, series in list(self._series.items()):
            below = 0
            buckets = []
            for bound, count in zip((*map(str, self.bounds), "+Inf"), series.counts, strict=True):
                below += count
                buckets.append((bound, below))
            family.add_metric(labels, buckets, series.total)
        return family

    def _at(self, labels: Labels) -> "_Series":
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = _Series(len(self.bounds) + 1)
        return series


class _Series:
    __slots__ = ("counts", "total")

    def __init__(self, classes: int) -> None:
        self.counts = [0] * classes
        self.total = 0.0


Instrument = Counter | Gauge | Histogram
