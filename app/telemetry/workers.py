"""Metrics of workers, read from the live router when scraped. A worker that is gone has no series."""

from collections.abc import Callable, Iterator, Mapping

from app.core.fleet.reasons import Failure, MarkKind, Outcome
from app.core.overload.health import Health
from app.core.routing.worker import WorkerState
from app.telemetry.instruments import Counter, Gauge, Instrument, Labels

Samples = Iterator[tuple[Labels, float]]


class WorkerMetrics:
    """workers: the router's live view, id -> state. clock: monotonic seconds, the one that samples are taken on."""

    def __init__(self, workers: Callable[[], Mapping[str, WorkerState]], clock: Callable[[], float]) -> None:
        self._workers = workers
        self._clock = clock
        self._errors = Counter(
            "upstream_errors_total",
            "Failures of workers. connect: nothing was sent; no_answer: sent, but no answer began; timeout: the time "
            "for the whole request ran out; stream_broken: an answer began and did not end.",
            ("worker", "kind"),
        )
        self._outcomes = Counter(
            "worker_requests_total", "Dispatches that ended on a worker, by outcome.", ("worker", "outcome")
        )
        self._marks = Counter(
            "worker_marks_total",
            "Marks that requests of this gateway gave a worker. overload: it said that it takes no more; failing: "
            "requests to it fail or hang; unreachable: no connection to it.",
            ("worker", "kind"),
        )
        self._gauges = (
            Gauge(
                "worker_state",
                "Processes of this gateway to which the worker is in this state: clear, marked (gets nothing), trial "
                "(one request at a time), ramp (slow start).",
                ("worker", "state"),
                self._state,
            ),
            Gauge(
                "worker_requests_active",
                "Requests of this process that hold the worker now.",
                ("worker",),
                self._active,
            ),
            Gauge(
                "worker_health",
                "1 healthy, 0 unhealthy, by probes; no series while it is not known.",
                ("worker",),
                self._health,
            ),
            Gauge(
                "worker_load",
                "Requests of everybody in the engine's batch (running) and queue (waiting), as it last said; "
                "no series while it has not.",
                ("worker", "state"),
                self._load,
            ),
            Gauge(
                "worker_kv_usage_ratio",
                "Share of KV blocks in use, 0 to 1, as the engine last said.",
                ("worker",),
                self._kv_usage,
            ),
            Gauge(
                "worker_load_age_seconds", "Age of what the engine last said of its load.", ("worker",), self._load_age
            ),
            Gauge("workers", "Registered workers by health.", ("health",), self._count),
        )

    def upstream_failed(self, worker_id: str, failure: Failure) -> None:
        self._errors.add((worker_id, failure.value))

    def marked(self, worker_id: str, kind: MarkKind) -> None:
        self._marks.add((worker_id, kind.value))

    def stream_broken(self, worker_id: str) -> None:
        self._errors.add((worker_id, "stream_broken"))

    def request_finished(self, worker_id: str, outcome: Outcome) -> None:
        self._outcomes.add((worker_id, outcome.value))

    def instruments(self) -> tuple[Instrument, ...]:
        """For one scrape: counts of workers that are gone are dropped first."""
        workers = self._workers()
        self._errors.keep(workers)
        self._outcomes.keep(workers)
        self._marks.keep(workers)
        return (self._errors, self._outcomes, self._marks, *self._gauges)

    def _states(self) -> list[tuple[str, WorkerState]]:
        return list(self._workers().items())

    def _active(self) -> Samples:
        for name, state in self._states():
            yield (name,), float(state.in_flight)

    def _health(self) -> Samples:
        for name, state in self._states():
            if state.health.state is not Health.UNKNOWN:
                yield (name,), float(state.health.state is Health.HEALTHY)

    def _state(self) -> Samples:
        now = self._clock()
        for name, state in self._states():
            yield (name, state.sheet.state(now).value), 1.0

    def _load(self) -> Samples:
        for name, state in self._states():
            if state.sample is not None:
                yield (name, "running"), float(state.sample.running)
                yield (name, "waiting"), float(state.sample.waiting)

    def _kv_usage(self) -> Samples:
        for name, state in self._states():
            if state.sample is not None and state.sample.kv_usage is not None:
                yield (name,), state.sample.kv_usage

    def _load_age(self) -> Samples:
        now = self._clock()
        for name, state in self._states():
            if state.sample is not None:
                yield (name,), now - state.sample.taken_at

    def _count(self) -> Samples:
        states = [state.health.state for _, state in self._states()]
        for health in Health:
            yield (health.value,), float(states.count(health))
