"""Metrics of requests: how many, how long, how many tokens, and what was decided about them."""

from collections.abc import Callable, Iterable

from app.core.fleet.commands import Dispatch, Refuse
from app.core.fleet.reasons import ChoiceReason, Outcome
from app.core.fleet.record import RequestRecord
from app.telemetry.instruments import Counter, Gauge, Histogram, Instrument

MODELS_MAX = 1000
"""Models, and tenants, with a label value of their own; all later ones share `other`."""

DURATION_BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 600, 1800)
TTFT_BOUNDS_S = (0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160)
GAP_BOUNDS_S = (
    0.002,
    0.005,
    0.01,
    0.015,
    0.02,
    0.025,
    0.03,
    0.04,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.5,
    1,
    2.5,
    5,
    10,
)

STREAM_BROKEN = "stream_broken"
"""The reason of a record whose answer the worker did not end: no refusal, but a failure of the worker."""

CLIENT_CLOSED = "499"
"""Status of a request whose client left before an answer began; the number that nginx made known."""


class BoundedLabel:
    """Values of a label that nobody can make up, but that come and go while a series never goes: the first MODELS_MAX
    have one of their own, all later ones share `other`."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[str, None] = {}

    def __call__(self, value: str) -> str:
        seen = self._seen
        if value in seen or not value:
            return value
        if len(seen) >= MODELS_MAX:
            return "other"
        seen[value] = None
        return value


class RequestMetrics:
    """Takes the record of each request that ended, and each decision.

    endpoints: the served paths; any other path is `other`. in_flight: requests that hold a worker, of this process.
    """

    def __init__(self, endpoints: Iterable[str], in_flight: Callable[[], int]) -> None:
        self._endpoints = dict.fromkeys(endpoints)
        self._model = BoundedLabel()
        self._tenant = BoundedLabel()
        self._requests = Counter(
            "requests_total",
            "Requests that ended, by path, served model (empty: refused before one was found) and HTTP status; "
            "499: the client left before the answer began.",
            ("endpoint", "model", "status"),
        )
        self._durations = Histogram(
            "request_duration_seconds",
            "Time from the head of a request to the last byte of its answer, or to its failure.",
            ("endpoint", "model"),
            DURATION_BOUNDS_S,
        )
        self._ttft = Histogram(
            "router_ttft_seconds",
            "Time from the head of a request to the first byte of the answer's body that was passed on.",
            ("model",),
            TTFT_BOUNDS_S,
        )
        self._gaps = Histogram(
            "router_itl_seconds",
            "Gaps between events of a streamed answer, as they left the gateway. An event is mostly one token.",
            ("model",),
            GAP_BOUNDS_S,
        )
        self._tokens = Counter(
            "router_tokens_total",
            "Tokens by the engine's own count. cached is the part of prompt that was not computed again. "
            "Answers without usage are not counted.",
            ("model", "kind"),
        )
        self._decisions = Counter(
            "router_decisions_total", "Dispatches to a worker, by policy and reason.", ("policy", "reason")
        )
        self._refusals = Counter("refusals_total", "Requests that the gateway itself answered with no.", ("reason",))
        self._retries = Counter(
            "retries_total",
            "Dispatches to a further worker because an earlier one could not be reached or took no more.",
        )
        self._disconnects = Counter("client_disconnects_total", "Requests whose client left before the answer's end.")
        self._tenant_requests = Counter("tenant_requests_total", "Requests with a valid key that ended.", ("tenant",))
        self._tenant_tokens = Counter(
            "tenant_tokens_total", "Tokens by the engine's own count, as in router_tokens_total.", ("tenant", "kind")
        )
        self._tenant_limited = Counter(
            "tenant_limited_total",
            "Requests answered with 429, by the limit that was reached, be it the tenant's or its key's.",
            ("tenant", "limit"),
        )
        self._in_flight = Gauge(
            "requests_in_flight", "Requests that hold a worker now.", (), lambda: [((), float(in_flight()))]
        )

    @property
    def instruments(self) -> tuple[Instrument, ...]:
        return (
            self._requests,
            self._durations,
            self._ttft,
            self._gaps,
            self._tokens,
            self._decisions,
            self._refusals,
            self._retries,
            self._disconnects,
            self._tenant_requests,
            self._tenant_tokens,
            self._tenant_limited,
            self._in_flight,
        )

    def decided(self, verdict: Dispatch | Refuse) -> None:
        """A refusal is not counted here but when its request ends, together with those of the edge."""
        if isinstance(verdict, Dispatch):
            self._decisions.add((verdict.policy, verdict.reason.value))
            if verdict.reason in (ChoiceReason.FAILOVER, ChoiceReason.RETRY):
                self._retries.add()

    def refused(self, reason: str) -> None:
        """`reason` is one of a closed set."""
        self._refusals.add((reason,))

    def ended(self, record: RequestRecord) -> None:
        """Exactly once per request."""
        endpoint = record.endpoint if record.endpoint in self._endpoints else "other"
        model = self._model(record.model)
        client_gone = record.outcome is Outcome.CLIENT_GONE
        self._requests.add((endpoint, model, _status(record.status, client_gone)))
        self._durations.observe((endpoint, model), record.duration_s)
        if record.ttft_s is not None:
            self._ttft.observe((model,), record.ttft_s)
        if record.gap_counts:
            self._gaps.merge((model,), record.gap_counts, record.gap_sum_s)
        if record.prompt_tokens:
            self._tokens.add((model, "prompt"), record.prompt_tokens)
        if record.completion_tokens:
            self._tokens.add((model, "completion"), record.completion_tokens)
        if record.cached_tokens:
            self._tokens.add((model, "cached"), record.cached_tokens)
        if record.refusal and record.refusal != STREAM_BROKEN:
            self._refusals.add((record.refusal,))
        if client_gone:
            self._disconnects.add()
        if record.tenant:
            self._ended_for(self._tenant(record.tenant), record)

    def _ended_for(self, tenant: str, record: RequestRecord) -> None:
        self._tenant_requests.add((tenant,))
        if record.prompt_tokens:
            self._tenant_tokens.add((tenant, "prompt"), record.prompt_tokens)
        if record.completion_tokens:
            self._tenant_tokens.add((tenant, "completion"), record.completion_tokens)
        if record.over:
            self._tenant_limited.add((tenant, record.over))


def _status(status: int, client_gone: bool) -> str:
    """A worker's status may be any number; only those that HTTP knows get a series."""
    if status == 0:
        return CLIENT_CLOSED if client_gone else "500"
    return str(status) if 100 <= status <= 599 else "other"
