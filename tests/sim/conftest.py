"""Real workers for the whole run: one process per kind, started when first asked for, stopped at the end."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from app.sim.worker.options import WorkerOptions
from tests.patience import until

ROOT = Path(__file__).parents[2]
METRICS = json.loads((Path(__file__).parent / "data" / "vllm" / "captured" / "metrics.json").read_text())
# What a simulated worker leaves out of /metrics: sizes and times by HTTP handler, and parts that it has not.
OMITTED_METRICS = ("http_", "vllm:lora_requests_info", "vllm:spec_decode_", "vllm:sleep_mode_")
READY = "simulated worker ready on "


class RunningWorker(NamedTuple):
    url: str
    process: subprocess.Popen[str]

    def metric(self, name: str, *labels: str) -> float:
        """The sum of a metric's series whose text holds all of `labels`."""
        text = httpx.get(f"{self.url}/metrics").text
        lines = [line for line in text.splitlines() if line.startswith(f"{name}{{")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if all(label in line for label in labels))

    def wait_for_metric(self, name: str, value: float) -> None:
        try:
            until(lambda: self.metric(name) == value)
        except AssertionError:
            raise AssertionError(f"{name} is {self.metric(name)}, not {value}") from None


@contextmanager
def running(options: WorkerOptions) -> Iterator[RunningWorker]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(options.argv(die_with_me=True), stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith(READY), line + process.stderr.read()
        yield RunningWorker(line.removeprefix(READY).strip(), process)
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


TINY = WorkerOptions(
    port=0, served_model_names=("tiny",), speed=5.0, max_model_len=2048, block_size=32, num_gpu_blocks_override=128
)
"""As the vLLM was started whose answers are in data/vllm/captured/generate.jsonl."""

KINDS: dict[str, WorkerOptions] = {
    "generate": TINY,
    "keyed": WorkerOptions(
        port=0,
        served_model_names=("tiny", "alias2"),
        speed=float("inf"),
        max_model_len=2048,
        api_key="sekret",
        enable_request_id_headers=True,
    ),
    "embed": WorkerOptions(port=0, served_model_names=("minilm",), task="embed", speed=float("inf"), max_model_len=256),
    # As tests/vllm/frontend.py starts its own: the vectors are short.
    "embed-narrow": WorkerOptions(
        port=0,
        served_model_names=("minilm",),
        task="embed",
        speed=float("inf"),
        max_model_len=256,
        embedding_dim=8,
    ),
    "classify": WorkerOptions(
        port=0, served_model_names=("cls",), task="classify", speed=float("inf"), max_model_len=512
    ),
    "score": WorkerOptions(port=0, served_model_names=("rank",), task="score", speed=float("inf"), max_model_len=512),
}


@pytest.fixture(scope="session")
def worker_of() -> Iterator[Callable[[str], RunningWorker]]:
    """The worker of a kind in `KINDS`."""
    with ExitStack() as stack:
        started: dict[str, RunningWorker] = {}

        def get(kind: str) -> RunningWorker:
            if kind not in started:
                started[kind] = stack.enter_context(running(KINDS[kind]))
            return started[kind]

        yield get


@pytest.fixture
def start() -> Callable[[WorkerOptions], AbstractContextManager[RunningWorker]]:
    """Starts a worker of the test's own; use it in a `with`."""
    return running
