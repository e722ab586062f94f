"""A client that leaves takes its work off the worker."""

import re

import httpx
import pytest

from tests.patience import until
from tests.vllm.exchanges import USER
from tests.vllm.process import ServerProcess
from tests.vllm.workers import CHAT_MODEL, Workers

RUNNING = re.compile(r"^vllm:num_requests_running\{.*\} (\S+)$", re.MULTILINE)
ENDED = re.compile(r'^vllm:request_success_total\{.*finished_reason="(?:stop|length)".*\} (\S+)$', re.MULTILINE)

BODY = {"model": CHAT_MODEL, "messages": USER, "max_tokens": 1900, "ignore_eos": True}


def total(workers: Workers, metric: "re.Pattern[str]") -> float:
    """Of the chat workers."""
    pages = (httpx.get(f"{worker.url}/metrics").text for worker in workers.chat)
    return sum(float(count) for page in pages for count in metric.findall(page))


def wait_for_running(workers: Workers, wanted: float) -> None:
    until(lambda: total(workers, RUNNING) == wanted)


def assert_given_up(workers: Workers, ended: float) -> None:
    """What runs goes, and not because it came to its end: it was left before."""
    wait_for_running(workers, 0)
    assert total(workers, ENDED) == ended


def test_metrics_are_there(live_workers: Workers) -> None:
    for worker in live_workers.chat:
        page = httpx.get(f"{worker.url}/metrics").text
        assert len(RUNNING.findall(page)) == 1
        assert len(ENDED.findall(page)) == 2


def test_client_leaves_a_stream(live_workers: Workers, live_gateway: ServerProcess) -> None:
    wait_for_running(live_workers, 0)
    ended = total(live_workers, ENDED)
    url = f"{live_gateway.url}/v1/chat/completions"
    with httpx.stream("POST", url, json=BODY | {"stream": True}, timeout=30) as response:
        lines = response.iter_lines()  # held: collected, it would close the response
        assert next(lines).startswith("data: ")
        wait_for_running(live_workers, 1)
    assert_given_up(live_workers, ended)


def test_client_leaves_before_the_answer(live_workers: Workers, live_gateway: ServerProcess) -> None:
    wait_for_running(live_workers, 0)
    ended = total(live_workers, ENDED)
    timeout = httpx.Timeout(30, read=1.0)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{live_gateway.url}/v1/chat/completions", json=BODY, timeout=timeout)
    assert_given_up(live_workers, ended)
