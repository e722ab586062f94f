"""All metrics of one process, and their exposition. Families are declared in requests.py, workers.py and here."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric

from app.core.fleet.commands import Dispatch, Refuse
from app.core.fleet.reasons import Failure, MarkKind, Outcome, WaitEnd
from app.core.fleet.record import RequestRecord
from app.core.fleet.request import RequestFacts
from app.core.overload.pressure import Pressure
from app.core.overload.queue import Queue
from app.core.routing.worker import WorkerState
from app.telemetry.exposition import encode
from app.telemetry.instruments import Counter, Gauge, Histogram, Instrument, Labels
from app.telemetry.queue import QueueMetrics
from app.telemetry.requests import GAP_BOUNDS_S, STREAM_BROKEN, RequestMetrics
from app.telemetry.workers import WorkerMetrics

LAG_BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2.5, 5)


STORE_UP = {"up": 1.0, "down": 0.0}


class Metrics:
    """Implements `runtime.ports.Telemetry` and what the data plane tells of requests that ended.

    endpoints: the served paths, the values of the label `endpoint`.
    workers, in_flight, queues: the live router's workers, its number of open requests, and who waits by model.
    store_state: "up", "down" or "unknown". clock: monotonic seconds. version: of this package.
    pressure: whether this process can keep up; None for one that serves nobody. further: instruments that only this
    process has.
    """

    gap_bounds_s: Sequence[float] = GAP_BOUNDS_S

    def __init__(
        self,
        *,
        endpoints: Iterable[str],
        workers: Callable[[], Mapping[str, WorkerState]],
        in_flight: Callable[[], int],
        queues: Callable[[], Mapping[str, Queue]],
        store_state: Callable[[], str],
        clock: Callable[[], float],
        version: str,
        pressure: Pressure | None = None,
        further: Iterable[Instrument] = (),
    ) -> None:
        self._requests = RequestMetrics(endpoints, in_flight)
        self._queue = QueueMetrics(queues)
        self._workers = WorkerMetrics(workers, clock)
        self._store_errors = Counter("store_errors_total", "Calls to the store that failed or ran out of time.")
        self._lag = Histogram(
            "event_loop_lag_seconds",
            "How late the event loop woke a timer, sampled four times a second. Every request waits this long.",
            (),
            LAG_BOUNDS_S,
        )

        def store_up() -> Iterator[tuple[Labels, float]]:
            state = STORE_UP.get(store_state())
            if state is not None:
                yield (), state

        self._process: tuple[Instrument, ...] = (
            Gauge(
                "store_up", "1 when the store answers, 0 when it does not; no series before it was asked.", (), store_up
            ),
            self._store_errors,
            self._lag,
            Gauge(
                "pressure",
                "Serving processes by whether they can keep up: calm, guarded (requests of priority low are refused), "
                "shedding (most are).",
                ("level",),
                lambda: [((pressure.level.name.lower(),), 1.0)] if pressure is not None else [],
            ),
            Gauge("build_info", "Always 1; the version is its label.", ("version",), lambda: [((version,), 1.0)]),
            *further,
        )
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    # Told by the gateway

    def decided(self, facts: RequestFacts, verdict: Dispatch | Refuse) -> None:
        self._requests.decided(verdict)

    def upstream_failed(self, worker_id: str, failure: Failure) -> None:
        self._workers.upstream_failed(worker_id, failure)

    def marked(self, worker_id: str, kind: MarkKind) -> None:
        self._workers.marked(worker_id, kind)

    def request_finished(self, worker_id: str, outcome: Outcome) -> None:
        self._workers.request_finished(worker_id, outcome)

    def waited(self, facts: RequestFacts, seconds: float, end: WaitEnd) -> None:
        self._queue.waited(facts, seconds, end)

    # Told by the data plane

    def ended(self, record: RequestRecord) -> None:
        """One request ended; `record.gap_counts` are by the classes of `gap_bounds_s`."""
        self._requests.ended(record)
        if record.refusal == STREAM_BROKEN and record.dispatch is not None:
            self._workers.stream_broken(record.dispatch.worker.id)

    def refused(self, reason: str) -> None:
        """A connection was refused before there was a request."""
        self._requests.refused(reason)

    # Told by the process

    def store_failed(self) -> None:
        self._store_errors.add()

    def loop_lagged(self, seconds: float) -> None:
        self._lag.observe((), seconds)

    # Asked by the scraper

    def collect(self) -> Iterator[Metric]:
        ours = (*self._requests.instruments, *self._queue.instruments, *self._workers.instruments(), *self._process)
        for instrument in ours:
            yield instrument.family()

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """The exposition in the format that an Accept header asks for, and its content type."""
        return encode(self.registry, accept)
