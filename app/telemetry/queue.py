"""Metrics of requests that wait for a worker."""

from collections.abc import Callable, Iterator, Mapping

from app.core.fleet.reasons import WaitEnd
from app.core.fleet.request import RequestFacts
from app.core.overload.queue import Queue
from app.telemetry.instruments import Gauge, Histogram, Instrument, Labels

WAIT_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300)


class QueueMetrics:
    """queues: the live router's, by model. Only models that there are have one, so they are labels as they stand."""

    def __init__(self, queues: Callable[[], Mapping[str, Queue]]) -> None:
        self._queues = queues
        self._wait = Histogram(
            "queue_wait_seconds",
            "Time that requests waited for a worker. dispatched: one could take it; dismissed: its time was over, or "
            "it had to make room; left: its client went.",
            ("model", "priority", "end"),
            WAIT_BOUNDS_S,
        )
        self.instruments: tuple[Instrument, ...] = (
            self._wait,
            Gauge("queue_requests", "Requests that wait for a worker now.", ("model", "priority"), self._requests),
            Gauge("queue_tokens", "Estimated tokens of the requests that wait now.", ("model",), self._tokens),
        )

    def waited(self, facts: RequestFacts, seconds: float, end: WaitEnd) -> None:
        self._wait.observe((facts.model, facts.priority.label, end.value), seconds)

    def _requests(self) -> Iterator[tuple[Labels, float]]:
        for model, queue in list(self._queues().items()):
            for priority, count in queue.counts().items():
                yield (model, priority.label), float(count)

    def _tokens(self) -> Iterator[tuple[Labels, float]]:
        for model, queue in list(self._queues().items()):
            yield (model,), float(queue.tokens)
