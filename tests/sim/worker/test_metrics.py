"""/metrics: the names, types, labels and buckets that a real vLLM 0.32.0 shows, and numbers that add up."""

import re
from collections.abc import Callable
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from app.sim.worker.options import WorkerOptions
from tests.sim.conftest import METRICS, OMITTED_METRICS

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "word " * 200}], "max_tokens": 7}


def test_names_types_and_labels_are_vllms(worker_of: Callable[[str], Any]) -> None:
    text = httpx.get(f"{worker_of('generate').url}/metrics").text
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    labels: dict[str, list[str]] = {}
    for name, shown in re.findall(r"^([a-z0-9_:]+)(?:\{(.*)\})? \S+$", text, re.M):
        labels.setdefault(name, sorted(re.findall(r'(\w+)="', shown)))
    found = {name: [kind, labels[f"{name}_bucket" if kind == "histogram" else name]] for name, kind in types.items()}
    expected = {name: family for name, family in METRICS["families"].items() if not name.startswith(OMITTED_METRICS)}
    # Labels that say nothing about a simulated cache are not there.
    described = set(found["vllm:cache_config_info"][1])
    assert described <= set(expected["vllm:cache_config_info"][1])
    expected["vllm:cache_config_info"] = ["gauge", sorted(described)]
    assert found == expected
    buckets: dict[str, list[str]] = {}
    for name, bound in re.findall(r'^(vllm:\w+)_bucket\{.*le="([^"]+)"', text, re.M):
        buckets.setdefault(name, []).append(bound)
    assert buckets == METRICS["bounds"]


def test_the_exposition_parses_and_histograms_count_up(worker_of: Callable[[str], Any]) -> None:
    text = httpx.get(f"{worker_of('generate').url}/metrics").text
    for family in text_string_to_metric_families(text):
        counts = [sample.value for sample in family.samples if sample.name.endswith("_bucket")]
        assert counts == sorted(counts)


def test_numbers_follow_the_requests(start: Callable[[WorkerOptions], Any]) -> None:
    options = WorkerOptions(port=0, served_model_names=("tiny",), speed=float("inf"))
    with start(options) as worker:
        usages = [httpx.post(f"{worker.url}/v1/chat/completions", json=CHAT).json()["usage"] for _ in range(3)]
        prompt = usages[0]["prompt_tokens"]
        cached = (prompt - 1) // 16 * 16
        assert [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages] == [0, cached, cached]
        assert usages[0]["prompt_tokens_details"]["created_cache_tokens"] == prompt // 16 * 16
        for name, value in {
            "prefix_cache_queries_total": 3 * prompt,
            "prefix_cache_hits_total": 2 * cached,
            "prompt_tokens_total": 3 * prompt,
            "prompt_tokens_cached_total": 2 * cached,
            "generation_tokens_total": 21,
            "time_to_first_token_seconds_count": 3,
            "inter_token_latency_seconds_count": 18,
            "e2e_request_latency_seconds_count": 3,
            "request_generation_tokens_sum": 21,
            "iteration_tokens_total_count": 21,
            "num_requests_running": 0,
            "kv_cache_usage_perc": 0,
        }.items():
            assert worker.metric(f"vllm:{name}") == value, name
        assert worker.metric("vllm:request_success_total", 'finished_reason="length"') == 3
        httpx.post(f"{worker.url}/v1/chat/completions", json={**CHAT, "n": 2})
        assert worker.metric("vllm:inter_token_latency_seconds_count") == 18 + 2 * 6
        assert worker.metric("vllm:request_params_n_sum") == 5
        # Both further answers hit what the first one left.
        assert worker.metric("vllm:prompt_tokens_by_source_total", "local_compute") == 5 * prompt - 4 * cached


def test_a_salt_keeps_tenants_apart(start: Callable[[WorkerOptions], Any]) -> None:
    options = WorkerOptions(port=0, served_model_names=("tiny",), speed=float("inf"))
    with start(options) as worker:
        cached = [
            httpx.post(f"{worker.url}/v1/chat/completions", json={**CHAT, "cache_salt": salt}).json()["usage"][
                "prompt_tokens_details"
            ]["cached_tokens"]
            for salt in ("a", "b", "a")
        ]
    assert cached[:2] == [0, 0]
    assert cached[2] > 0
