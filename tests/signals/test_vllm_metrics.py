"""Pages as engines write them, and pages that no engine should."""

from pathlib import Path
from typing import Any

import pytest

from app.signals.vllm_metrics import EngineMetrics, read_metrics

DATA = Path(__file__).parent / "data"
VLLM: Any = {"engine": "vllm", "spec_decode": False}


@pytest.mark.parametrize(
    ("lines", "steps", "is_asleep"),
    [
        (b"", None, False),
        (b'vllm:iteration_tokens_total_count{engine="0"} 7\n', 7, False),
        (b'vllm:iteration_tokens_total_count{engine="0"} 7\nvllm:generation_tokens_total{a="}"} 5\n', 12, False),
        (b'vllm:prompt_tokens_total{engine="0"} 1\nvllm:prompt_tokens_total{engine="1"} 2\n', 3, False),
        (b'vllm:engine_sleep_state{engine="0",sleep_state="awake"} 1.0\n', None, False),
        (b'vllm:engine_sleep_state{engine="0",sleep_state="awake"} 0.0\n', None, True),
        (b'vllm:engine_sleep_state{engine="0",sleep_state="discard_all"} 0.0\n', None, False),
        (b'vllm:engine_sleep_state{sleep_state="awake"} nonsense\n', None, False),
    ],
)
def test_progress_and_sleep(lines: bytes, steps: float | None, is_asleep: bool) -> None:
    read = read_metrics(b"# HELP x\n" + lines)
    assert (read.steps, read.is_asleep) == (steps, is_asleep)


def test_a_page_of_vllm_before_and_after_traffic() -> None:
    assert read_metrics((DATA / "vllm-0.32.0-metrics-fresh.txt").read_bytes()) == EngineMetrics(
        running=0,
        waiting=0,
        kv_usage=0.0,
        prefix_hits=0.0,
        prefix_queries=0.0,
        process_start=1796070480.15,
        steps=0.0,
        **VLLM,
    )
    assert read_metrics((DATA / "vllm-0.32.0-metrics-after.txt").read_bytes()) == EngineMetrics(
        running=0,
        waiting=0,
        kv_usage=0.0,
        prefix_hits=512.0,
        prefix_queries=881.0,
        process_start=1796070480.15,
        steps=884.0,
        **VLLM,
    )


def test_engines_behind_one_address_are_summed_and_the_fullest_counts() -> None:
    page = b"""
vllm:num_requests_running{engine="0",model_name="a"} 3.0
vllm:num_requests_running{engine="1",model_name="a"} 4.0
vllm:num_requests_waiting{engine="0",model_name="a"} 0.0
vllm:num_requests_waiting{engine="1",model_name="a"} 2.0
vllm:num_requests_waiting_by_reason{engine="1",model_name="a",reason="capacity"} 50.0
vllm:kv_cache_usage_perc{engine="0",model_name="a"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="a"} 0.75
vllm:prefix_cache_hits_total{engine="0",model_name="a"} 10.0
vllm:prefix_cache_hits_total{engine="1",model_name="a"} 20.0
vllm:prefix_cache_queries_total{engine="0",model_name="a"} 100.0
vllm:prefix_cache_queries_total{engine="1",model_name="a"} 200.0
"""
    assert read_metrics(page) == EngineMetrics(7, 2, 0.75, 30.0, 300.0, **VLLM)


def test_names_of_older_engines() -> None:
    page = b"""vllm:num_requests_running{model_name="a"} 1
vllm:num_requests_waiting{model_name="a"} 2
vllm:gpu_cache_usage_perc{model_name="a"} 0.5
vllm:gpu_prefix_cache_queries_total{model_name="a"} 8
vllm:gpu_prefix_cache_hits_total{model_name="a"} 4"""
    assert read_metrics(page) == EngineMetrics(1, 2, 0.5, 4.0, 8.0, **VLLM)


def test_a_metric_under_its_old_and_its_new_name_counts_once() -> None:
    page = b"""vllm:gpu_prefix_cache_hits_total{model_name="a"} 4
vllm:prefix_cache_hits_total{model_name="a"} 4
vllm:gpu_cache_usage_perc{model_name="a"} 0.9
vllm:kv_cache_usage_perc{model_name="a"} 0.5
"""
    assert read_metrics(page).prefix_hits == 4
    assert read_metrics(page).kv_usage == 0.5


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"\n\n",
        b"<html>not found</html>",
        b"# HELP vllm:num_requests_running x\n# TYPE vllm:num_requests_running gauge\n",
        b" vllm:num_requests_running 7\n",
        b"x vllm:num_requests_running 7\n",
        b"\xff\xfe\x00" * 100,
    ],
)
def test_what_is_not_said_is_unknown_and_never_zero(page: bytes) -> None:
    assert read_metrics(page) == EngineMetrics()


@pytest.mark.parametrize("value", [b"NaN", b"-1", b"+Inf", b"many", b"", b"1e300", b"\xff"])
def test_a_value_that_is_none_makes_its_metric_unknown(value: bytes) -> None:
    page = b'vllm:num_requests_running{engine="0"} 3\nvllm:num_requests_running{engine="1"} ' + value
    assert read_metrics(page + b"\nvllm:num_requests_waiting 1\n") == EngineMetrics(waiting=1, **VLLM)


def test_names_that_only_begin_alike_say_nothing() -> None:
    assert read_metrics(b"vllm:num_requests_running_total 7\nvllm:num_requests_runnin 7\n") == EngineMetrics(**VLLM)


@pytest.mark.parametrize(
    ("page", "engine", "spec_decode"),
    [
        (b"vllm:num_requests_running 3\n", "vllm", False),
        (b'vllm:num_requests_running 3\nvllm:spec_decode_num_drafts_total{engine="0"} 0.0\n', "vllm", True),
        (b"vllm:num_requests_running 3\ndynamo_component_requests_total 1\n", "dynamo", False),
        (b"sglang:num_running_reqs 3\nsglang:num_queue_reqs 1\n", "sglang", None),
        (b"other_requests 3\n", "", None),
    ],
)
def test_which_engine_it_is_and_how_it_decodes(page: bytes, engine: str, spec_decode: bool | None) -> None:
    metrics = read_metrics(page)
    assert (metrics.engine, metrics.spec_decode) == (engine, spec_decode)


def test_a_share_above_one_is_unknown() -> None:
    assert read_metrics(b"vllm:kv_cache_usage_perc 97.0").kv_usage is None


def test_label_values_may_hold_anything() -> None:
    page = b'vllm:num_requests_running{engine="0",model_name="a} 9 b \\" {"} 3 1796070480000\r\n'
    assert read_metrics(page).running == 3


def test_several_start_times_are_none() -> None:
    assert read_metrics(b"process_start_time_seconds 5\nprocess_start_time_seconds 6\n").process_start is None
