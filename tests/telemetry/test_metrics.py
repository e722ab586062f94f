"""The exposition, against a golden file, and the bounds of its labels."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from app.core.fleet.commands import Refuse
from app.core.fleet.load import LoadSample
from app.core.fleet.priority import Priority
from app.core.fleet.reasons import ChoiceReason, Failure, MarkKind, Outcome, RefusalReason, WaitEnd
from app.core.fleet.request import RequestFacts
from app.core.overload.pressure import Pressure
from app.core.overload.queue import Queue, Waiting
from app.core.routing.worker import WorkerState
from app.telemetry import requests
from app.telemetry.metrics import Metrics
from tests.telemetry.records import dispatch, record, worker_state

GOLDEN = Path(__file__).parent / "exposition.txt"

FACTS = RequestFacts("req-1", "llama", "/v1/chat/completions")


def metrics_of(workers: Mapping[str, WorkerState], **changes: Any) -> Metrics:
    options: dict[str, Any] = {
        "endpoints": ["/v1/chat/completions", "/v1/embeddings"],
        "workers": lambda: workers,
        "in_flight": lambda: 3,
        "queues": dict,
        "store_state": lambda: "up",
        "clock": lambda: 100.0,
        "version": "1.2.3",
    }
    return Metrics(**(options | changes))


def samples(metrics: Metrics) -> dict[str, float]:
    """Every sample as it is written (`name{labels}`), without the process collector's."""
    text = metrics.exposition()[0].decode()
    rows = (row.rpartition(" ") for row in text.splitlines() if row.startswith("warmset_"))
    return {name: float(value) for name, _, value in rows}


def test_golden_exposition() -> None:
    """Names, types, help, labels and classes are a public surface: a change of them changes this file on purpose."""
    workers = dict(
        [
            worker_state("gpu-1:8000", healthy=True, in_flight=2, sample=LoadSample(99.5, 4, 1, 2, 0.25)),
            worker_state("gpu-2:8000", healthy=False, sample=LoadSample(98.0, 0, 0, 0)),
            worker_state("gpu-3:8000", healthy=None),
        ]
    )
    queue = Queue()
    queue.put(Waiting(1, RequestFacts("req-2", "llama", "/", tokens=50, priority=Priority.HIGH), 0.0, 9.0))
    metrics = metrics_of(workers, queues=lambda: {"llama": queue}, pressure=Pressure())
    metrics.waited(FACTS, 0.3, WaitEnd.DISPATCHED)
    metrics.decided(FACTS, dispatch())
    metrics.decided(FACTS, dispatch("gpu-2:8000", ChoiceReason.FAILOVER))
    metrics.decided(FACTS, Refuse(RefusalReason.NO_WORKERS))
    metrics.upstream_failed("gpu-1:8000", Failure.CONNECT)
    metrics.marked("gpu-1:8000", MarkKind.UNREACHABLE)
    metrics.request_finished("gpu-2:8000", Outcome.SERVED)
    gaps = [0] * (len(metrics.gap_bounds_s) + 1)
    gaps[3], gaps[-1] = 9, 1
    usage = {"prompt_tokens": 1000, "completion_tokens": 20, "cached_tokens": 640}
    metrics.ended(record(tenant="acme", ttft_s=0.1, gap_counts=gaps, gap_sum_s=11.5, events=11, **usage))
    metrics.ended(record(endpoint="/v1/embeddings", duration_s=0.025, prompt_tokens=8))
    metrics.ended(record(model="", dispatch=None, status=503, outcome=Outcome.FAILED, refusal="no_workers"))
    metrics.ended(record(status=0, outcome=Outcome.CLIENT_GONE))
    metrics.ended(record(model="", dispatch=None, status=429, tenant="acme", over="requests"))
    metrics.ended(record(outcome=Outcome.FAILED, refusal="stream_broken"))
    metrics.store_failed()
    metrics.loop_lagged(0.003)
    text = metrics.exposition()[0].decode()
    ours = re.sub(r"(?m)^(# (HELP|TYPE) )?(process_|python_).*\n", "", text)
    assert "process_resident_memory_bytes" in text
    assert ours == GOLDEN.read_text(encoding="utf-8")


def test_before_anything_happened_there_is_nothing_that_is_not_known() -> None:
    found = samples(metrics_of(dict([worker_state("w", healthy=None)]), store_state=lambda: "unknown"))
    assert found.pop('warmset_build_info{version="1.2.3"}') == 1
    assert found.pop("warmset_requests_in_flight") == 3
    assert found.pop('warmset_workers{health="unknown"}') == 1
    assert found.pop('warmset_worker_state{state="clear",worker="w"}') == 1
    assert not any(found.values())
    assert sorted(found) == sorted(
        [
            "warmset_client_disconnects_total",
            "warmset_retries_total",
            "warmset_store_errors_total",
            'warmset_worker_requests_active{worker="w"}',
            'warmset_workers{health="healthy"}',
            'warmset_workers{health="unhealthy"}',
        ]
    )


@pytest.mark.parametrize(("state", "value"), [("up", 1), ("down", 0), ("unknown", None)])
def test_store_up(state: str, value: float | None) -> None:
    assert samples(metrics_of({}, store_state=lambda: state)).get("warmset_store_up") == value


def test_tenants_beyond_the_limit_share_one_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MODELS_MAX", 1)
    metrics = metrics_of({})
    for tenant in ("a", "b", "c", "a", ""):
        metrics.ended(record(tenant=tenant))
    counted = {name: value for name, value in samples(metrics).items() if "tenant_requests_total{" in name}
    assert counted == {
        'warmset_tenant_requests_total{tenant="a"}': 2,
        'warmset_tenant_requests_total{tenant="other"}': 2,
    }


def test_models_beyond_the_limit_share_one_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MODELS_MAX", 2)
    metrics = metrics_of({})
    for model in ("a", "b", "c", "d", "a", ""):
        metrics.ended(record(model=model))
    counts = {
        found[1]: value
        for name, value in samples(metrics).items()
        if (found := re.search(r'requests_total.*model="(.*?)"', name))
    }
    assert counts == {"a": 2, "b": 1, "other": 2, "": 1}


@pytest.mark.parametrize(
    ("changes", "labels"),
    [
        ({"endpoint": "/../etc"}, 'endpoint="other",model="llama",status="200"'),
        ({"status": 777}, 'endpoint="/v1/chat/completions",model="llama",status="other"'),
        ({"status": 429}, 'endpoint="/v1/chat/completions",model="llama",status="429"'),
        ({"status": 0, "outcome": Outcome.CLIENT_GONE}, 'endpoint="/v1/chat/completions",model="llama",status="499"'),
        ({"status": 0, "outcome": Outcome.FAILED}, 'endpoint="/v1/chat/completions",model="llama",status="500"'),
    ],
)
def test_labels_come_from_fixed_sets(changes: dict[str, Any], labels: str) -> None:
    metrics = metrics_of({})
    metrics.ended(record(**changes))
    assert samples(metrics)[f"warmset_requests_total{{{labels}}}"] == 1


def test_a_refusal_is_counted_once_and_a_broken_stream_is_the_workers() -> None:
    metrics = metrics_of(dict([worker_state("gpu-1:8000", healthy=True)]))
    metrics.decided(FACTS, Refuse(RefusalReason.NO_WORKERS))
    metrics.ended(record(status=503, refusal="no_workers", outcome=Outcome.FAILED, dispatch=None))
    metrics.ended(record(refusal="stream_broken", outcome=Outcome.FAILED))
    found = samples(metrics)
    assert found['warmset_refusals_total{reason="no_workers"}'] == 1
    assert found['warmset_upstream_errors_total{kind="stream_broken",worker="gpu-1:8000"}'] == 1
    assert not [name for name in found if name.startswith("warmset_refusals_total") and "broken" in name]


def test_a_worker_that_is_gone_has_no_series() -> None:
    workers = dict([worker_state("a", healthy=True), worker_state("b", healthy=True)])
    metrics = metrics_of(workers)
    for worker in ("a", "b"):
        metrics.upstream_failed(worker, Failure.TIMEOUT)
        metrics.request_finished(worker, Outcome.FAILED)
    assert any('worker="b"' in name for name in samples(metrics))
    del workers["b"]
    # A late word of it does not bring it back.
    metrics.request_finished("b", Outcome.SERVED)
    found = samples(metrics)
    assert not any('worker="b"' in name for name in found)
    assert found['warmset_upstream_errors_total{kind="timeout",worker="a"}'] == 1


def test_gaps_of_a_stream_are_taken_over_class_by_class() -> None:
    metrics = metrics_of({})
    counts = list(range(len(metrics.gap_bounds_s) + 1))
    for _ in range(2):
        metrics.ended(record(gap_counts=counts, gap_sum_s=3.0))
    found = samples(metrics)
    assert found['warmset_router_itl_seconds_count{model="llama"}'] == 2 * sum(counts)
    assert found['warmset_router_itl_seconds_sum{model="llama"}'] == 6.0
    assert found['warmset_router_itl_seconds_bucket{le="0.01",model="llama"}'] == 2 * (0 + 1 + 2)


@pytest.mark.parametrize("accept", ["", "text/plain", "text/plain; version=x", "*/*", ",;,"])
def test_plain_text_parses(accept: str) -> None:
    metrics = metrics_of({})
    metrics.ended(record(model='odd "name"\n\\'))
    body, content_type = metrics.exposition(accept)
    assert content_type.startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in parse_plain(body.decode())}
    assert families["warmset_requests"].samples[0].labels["model"] == 'odd "name"\n\\'


@pytest.mark.parametrize("version", ["; version=1.0.0", "", "; version=x", "; version=99"])
def test_openmetrics_parses(version: str) -> None:
    metrics = metrics_of(dict([worker_state("w", healthy=True)]))
    metrics.ended(record(ttft_s=0.1))
    body, content_type = metrics.exposition(f"application/openmetrics-text{version},text/plain;q=0.5")
    assert content_type.startswith("application/openmetrics-text")
    assert {"warmset_requests", "warmset_router_ttft_seconds"} <= {
        family.name for family in parse_openmetrics(body.decode())
    }
