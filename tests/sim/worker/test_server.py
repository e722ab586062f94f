"""The process: how it stops, and that it does not outlive its parent."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from app.sim.worker.options import WorkerOptions
from tests.patience import PATIENCE_S, until
from tests.sim.conftest import READY, ROOT

OPTIONS = WorkerOptions(port=0, served_model_names=("tiny",), speed=1.0)
LONG = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 60_000}
"""Nearly ten minutes: what ends before has not come to its own end."""


def test_a_polite_stop_ends_streams_properly(start: Callable[[WorkerOptions], Any]) -> None:
    with start(OPTIONS) as worker:
        whole: list[httpx.Response] = []
        thread = threading.Thread(
            target=lambda: whole.append(httpx.post(f"{worker.url}/v1/chat/completions", json=LONG))
        )
        thread.start()
        lines = []
        with httpx.stream("POST", f"{worker.url}/v1/chat/completions", json={**LONG, "stream": True}) as answer:
            worker.wait_for_metric("vllm:num_requests_running", 2)
            worker.process.send_signal(signal.SIGTERM)
            lines = [line for line in answer.iter_lines() if line]
        assert worker.process.wait(PATIENCE_S) == 0
        thread.join()
    assert lines[-1] == "data: [DONE]"
    assert '"delta":{"content":""}' in lines[-2]
    assert '"finish_reason":"abort"' in lines[-2]
    assert whole[0].json()["choices"][0]["finish_reason"] == "abort"


def test_an_idle_worker_stops_at_once(start: Callable[[WorkerOptions], Any]) -> None:
    with start(OPTIONS) as worker:
        worker.process.send_signal(signal.SIGINT)
        assert worker.process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("is_asked_again", [False, True])
def test_whoever_does_not_finish_is_waited_for_but_not_after_a_second_signal(
    start: Callable[[WorkerOptions], Any], is_asked_again: bool
) -> None:
    with start(OPTIONS) as worker:
        host, port = worker.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as half_sent:
            half_sent.sendall(
                b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
                b"expect: 100-continue\r\ncontent-length: 100\r\n\r\n"
            )
            assert half_sent.recv(100).startswith(b"HTTP/1.1 100 "), "it waits for the rest"
            began = time.monotonic()
            worker.process.send_signal(signal.SIGTERM)
            while is_asked_again and worker.process.poll() is None:
                time.sleep(0.2)  # two at once would be one to the kernel
                worker.process.send_signal(signal.SIGTERM)
            assert worker.process.wait(PATIENCE_S) == (128 + signal.SIGTERM if is_asked_again else 0)
            assert is_asked_again or time.monotonic() - began > 2


def test_a_killed_launcher_leaves_no_worker_behind() -> None:
    program = (
        "import subprocess, sys, time\n"
        "from app.sim.worker.options import WorkerOptions\n"
        "worker = subprocess.Popen(WorkerOptions(port=0).argv(die_with_me=True))\n"
        "print(worker.pid, flush=True)\n"
        "time.sleep(1000)\n"
    )
    launcher = subprocess.Popen(
        [sys.executable, "-P", "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert launcher.stdout is not None
    assert launcher.stderr is not None
    try:
        worker_pid = int(launcher.stdout.readline())
        assert launcher.stderr.readline().startswith(READY)
        launcher.kill()
        launcher.wait()
        until(lambda: not is_running(worker_pid))
    finally:
        launcher.kill()
        launcher.wait()
        launcher.stdout.close()
        launcher.stderr.close()


def is_running(pid: int) -> bool:
    """A process that has ended may stay as a zombie where nobody reaps it."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_another_parent_than_expected_is_refused() -> None:
    argv = WorkerOptions(port=0, parent_pid=1 if os.getpid() != 1 else 2).argv()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run(argv, env=environment, capture_output=True, timeout=PATIENCE_S, check=False).returncode == 1


def test_options_that_do_not_fit_together_are_explained() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for options, word in (
        (WorkerOptions(port=0, num_gpu_blocks_override=4, max_model_len=100), "KV cache"),
        (WorkerOptions(port=0, speed=0.0), "speed"),
    ):
        done = subprocess.run(
            options.argv(), env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 1
        assert word in done.stderr
        assert "Traceback" not in done.stderr
