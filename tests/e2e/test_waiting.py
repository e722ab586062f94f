"""Requests that wait for a worker, through whole processes: a rollout, a busy worker, priorities, and what is told."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from app.commands.simulated import SimulatedFleet
from app.sim.worker.options import WorkerOptions
from tests.e2e.conftest import Gateway
from tests.patience import PATIENCE_S, until

FLAGS = ("--processes", "1", "--queue-timeout-secs", "60", "--max-worker-requests", "1")


@pytest.fixture(scope="module")
def fleet() -> Iterator[SimulatedFleet]:
    with SimulatedFleet([WorkerOptions(port=0, served_model_names=("m",), speed=2)] * 2) as started:
        yield started


@pytest.fixture(scope="module")
def gateway(fleet: SimulatedFleet) -> Iterator[Gateway]:
    with ExitStack() as stack:
        started = Gateway("serve", "--worker-urls", fleet.urls[0], *FLAGS)
        stack.callback(started.end)
        started.listening()
        started.until(lambda status: [worker["health"] for worker in status["workers"]] == ["healthy"])
        yield started


class Asking(threading.Thread):
    """One request, and what came of it."""

    def __init__(self, gateway: Gateway, tokens: int, **headers: str) -> None:
        super().__init__(daemon=True)
        self._url = gateway.data + "/v1/completions"
        self._body: dict[str, Any] = {"model": "m", "prompt": "x", "max_tokens": tokens, "ignore_eos": True}
        self._headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.ended_at = 0.0
        self.answer: httpx.Response | None = None
        self.start()

    def run(self) -> None:
        self.answer = httpx.post(self._url, json=self._body, headers=self._headers, timeout=2 * PATIENCE_S)
        self.ended_at = time.monotonic()

    def ended(self) -> httpx.Response:
        self.join(2 * PATIENCE_S)
        assert self.answer is not None
        return self.answer


def waiting(gateway: Gateway) -> int:
    pools = httpx.get(gateway.admin + "/status", timeout=PATIENCE_S).json()["pools"]
    return int(pools["m"]["waiting_requests"])


def test_a_busy_workers_requests_wait_and_the_urgent_one_goes_first(gateway: Gateway) -> None:
    running = Asking(gateway, 2000)
    gateway.until(lambda status: status["open_requests"] == 1)
    low = Asking(gateway, 5, x_warmset_priority="low")
    until(lambda: waiting(gateway) == 1)
    urgent = Asking(gateway, 5, x_warmset_priority="critical")
    until(lambda: waiting(gateway) == 2)
    exposition = gateway.exposition()
    assert 'warmset_queue_requests{model="m",priority="low"} 1.0' in exposition
    assert 'warmset_queue_requests{model="m",priority="critical"} 1.0' in exposition
    assert [asked.ended().status_code for asked in (running, low, urgent)] == [200] * 3
    assert running.ended_at < urgent.ended_at < low.ended_at
    assert 'warmset_queue_wait_seconds_count{end="dispatched",model="m",priority="low"} 1.0' in gateway.exposition()


def test_a_rollout_loses_nothing(gateway: Gateway, fleet: SimulatedFleet) -> None:
    """The only worker goes, requests come, and another one takes them."""
    with httpx.Client(base_url=gateway.admin, timeout=PATIENCE_S) as admin:
        old = admin.get("/workers").json()["workers"][0]["id"]
        assert admin.delete(f"/workers/{old}").status_code == 200
        gateway.until(lambda status: not status["workers"])
        asked = [Asking(gateway, 1) for _ in range(5)]
        time.sleep(0.5)
        assert not any(each.answer for each in asked)
        assert admin.post("/workers", json={"url": fleet.urls[1]}).status_code in (200, 201)
        assert [each.ended().status_code for each in asked] == [200] * 5
