"""A client that leaves takes its work off the worker."""

import re
import time

import httpx
import pytest

from tests.vllm.exchanges import USER
from tests.vllm.process import ServerProcess
from tests.vllm.workers import CHAT_MODEL, Workers

RUNNING = re.compile(r"^vllm:num_requests_running\{.*\} (\S+)$", re.MULTILINE)

# vLLM itself needs 0.04 to 0.18 s after a client left; the rest is for a busy box, where its page of metrics alone was
# seen to take seconds. To its end the request would run for 10 s and more.
GONE_LIMIT_S = 5.0
BODY = {"model": CHAT_MODEL, "messages": USER, "max_tokens": 1900, "ignore_eos": True}


def running(workers: Workers) -> float:
    """Requests that the chat workers say they work on."""
    pages = (httpx.get(f"{worker.url}/metrics", timeout=30).text for worker in workers.chat)
    return sum(float(count) for page in pages for count in RUNNING.findall(page))


def wait_for(workers: Workers, wanted: float, limit_s: float) -> float:
    """Seconds until `wanted` requests are running."""
    began = time.monotonic()
    while (count := running(workers)) != wanted:
        assert time.monotonic() - began < limit_s, f"{count} requests are running, not {wanted}"
        time.sleep(0.02)
    return time.monotonic() - began


def test_gauge_is_there(live_workers: Workers) -> None:
    for worker in live_workers.chat:
        assert len(RUNNING.findall(httpx.get(f"{worker.url}/metrics").text)) == 1


def test_client_leaves_a_stream(live_workers: Workers, live_gateway: ServerProcess) -> None:
    wait_for(live_workers, 0, 30)
    url = f"{live_gateway.url}/v1/chat/completions"
    with httpx.stream("POST", url, json=BODY | {"stream": True}, timeout=30) as response:
        lines = response.iter_lines()  # held: collected, it would close the response
        assert next(lines).startswith("data: ")
        wait_for(live_workers, 1, 5)
    wait_for(live_workers, 0, GONE_LIMIT_S)


def test_client_leaves_before_the_answer(live_workers: Workers, live_gateway: ServerProcess) -> None:
    wait_for(live_workers, 0, 30)
    timeout = httpx.Timeout(30, read=1.0)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{live_gateway.url}/v1/chat/completions", json=BODY, timeout=timeout)
    wait_for(live_workers, 0, GONE_LIMIT_S)
