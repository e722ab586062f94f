"""The load test works end to end, and what it reports makes sense. Not how fast anything is."""

import json
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import pytest

from loadtest import micro
from loadtest.answers import events
from loadtest.client import ClosedLoop
from loadtest.processes import Cores, Server, cpu_s, tree
from loadtest.prompts import Prompts
from tests.patience import PATIENCE_S, eventually

ROOT = Path(__file__).resolve().parents[2]

ROWS = ("direct", "uvicorn", "gateway")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("loadtest") / "report.json"
    command = [sys.executable, "-m", "loadtest.hotpath", "--quick", "--json", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=4 * PATIENCE_S, check=False)
    assert path.exists(), done.stderr
    found: dict[str, Any] = json.loads(path.read_text())
    assert done.returncode == 0, (found["warnings"], done.stderr)
    assert done.stdout.startswith(found["date"])
    return found


@pytest.mark.parametrize("name", ["A", "B", "C", "D", "E"])
def test_every_cell_was_measured_without_errors(report: dict[str, Any], name: str) -> None:
    rows = report["cells"][name]["rows"]
    assert list(rows)[:3] == list(ROWS)
    for row in rows.values():
        assert row["errors"] == 0, row["error"]
        assert row["requests"] > 0
        assert row["latency_p50_ms"] > 0


@pytest.mark.parametrize("name", ["C", "E"])
def test_streams_have_events_and_gaps(report: dict[str, Any], name: str) -> None:
    for row in report["cells"][name]["rows"].values():
        assert row["events"] > row["requests"]
        assert row["events_per_piece"] >= 1
        assert row["ttft_p50_ms"] > 0
        if name == "E":  # without a pause between them, all events may come at once
            assert row["gap_p99_ms"] >= row["gap_p50_ms"] > 0


def test_the_cpu_is_that_of_the_servers(report: dict[str, Any]) -> None:
    rows = report["cells"]["A"]["rows"]
    for name in ("uvicorn", "gateway", "gateway, access log"):
        assert rows[name]["cpu_ms_per_request"] > 0.001
    assert rows["direct"]["cpu_ms_per_request"] == 0
    assert report["cells"]["C"]["rows"]["gateway"]["cpu_us_per_event"] > 0
    assert report["cells"]["A"]["ratios"]["cpu_ms_per_request, gateway / uvicorn"] > 0


def test_memory_idle_and_targets_are_told(report: dict[str, Any]) -> None:
    assert report["quick"] is True
    assert report["rounds"] == 1
    assert report["memory"]["all_rss_mib"] > report["memory"]["serving_rss_mib"] > 10
    assert report["idle"]["all_cpu_ms_per_s"] >= report["idle"]["serving_cpu_ms_per_s"] >= 0
    assert set(report["targets"]) == {"A cpu_ms_per_request", "C cpu_us_per_event"}
    assert report["machine"]["cores"] >= 1


@pytest.mark.parametrize("size", [2048, 32 * 1024])
@pytest.mark.parametrize("count", [0, 200])
def test_prompts_have_their_size_and_differ(size: int, count: int) -> None:
    bodies = [request.partition(b"\r\n\r\n")[2] for request in islice(Prompts(size, events=count), 256)]
    prompts = [orjson.loads(body)["messages"][0]["content"] for body in bodies]
    assert {len(body) for body in bodies} == {size}
    assert len(set(prompts)) == 256
    beginnings = [prompt[: size // 4] for prompt in prompts]
    assert len(set(beginnings)) == 128 + 64, "half of them begin with one of 64 prefixes"


def test_a_stream_has_as_many_events_as_asked_for() -> None:
    stream = events(200)
    assert len(stream) == 200
    assert all(event.count(b"\n\n") == 1 for event in stream)
    assert stream[-1] == b"data: [DONE]\n\n"


async def test_an_answer_with_events_missing_is_an_error() -> None:
    server = Server(["-m", "loadtest.stub", "--workers", "1"], set(Cores().all), sys.stderr.fileno())
    try:
        port = int(server.read_urls()[0].rpartition(":")[2])
        load = ClosedLoop([("127.0.0.1", port)], iter(Prompts(2048, events=10)), 11)
        await load.start(1)
        await eventually(lambda: load.tally.requests)
        await load.end()
        assert "with 10 events" in load.errors[0]
        assert cpu_s(tree(server.process.pid)) > 0
    finally:
        server.end()


def test_single_steps_are_timed() -> None:
    assert micro.decision_ns("power_of_two", 2, 0.001) > 100
    assert micro.facts_ns(2048, 0.001) > 100
