"""Several serving processes on one port: alike for clients, one for the operator."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from openai import OpenAI

from app.commands.simulated import SimulatedFleet
from app.sim.worker.options import WorkerOptions
from tests.e2e.conftest import Gateway, all_gone

HELLO = [{"role": "user", "content": "Say hello"}]


@pytest.fixture
def fleet() -> Iterator[SimulatedFleet]:
    with SimulatedFleet([WorkerOptions(port=0, served_model_names=("m",), speed=20)] * 2) as started:
        yield started


@pytest.fixture
def slow_fleet() -> Iterator[SimulatedFleet]:
    with SimulatedFleet([WorkerOptions(port=0, served_model_names=("m",), speed=3)] * 2) as started:
        yield started


def start(gateway: Callable[..., Gateway], fleet: SimulatedFleet, *more: str) -> Gateway:
    served = gateway("serve", "--worker-urls", ",".join(fleet.urls), "--processes", "2", *more)
    served.until(lambda status: [worker["health"] for worker in status["workers"]] == ["healthy"] * 2)
    return served


def ask(gateway: Gateway, number: int) -> None:
    """`number` requests, each over a connection of its own."""
    for _ in range(number):
        body = {"model": "m", "messages": HELLO, "max_tokens": 2}
        answer = httpx.post(gateway.data + "/v1/chat/completions", json=body, timeout=10)
        assert answer.status_code == 200, answer.text


def served_requests(gateway: Gateway) -> float:
    name = 'warmset_requests_total{endpoint="/v1/chat/completions",model="m",status="200"} '
    return sum(float(line.removeprefix(name)) for line in gateway.exposition().splitlines() if line.startswith(name))


def pids(status: Any) -> list[int]:
    return [process["pid"] for process in status["processes"] if process["ready"]]


def test_one_scrape_counts_what_all_did(gateway: Callable[..., Gateway], fleet: SimulatedFleet) -> None:
    served = start(gateway, fleet)
    ask(served, 30)
    assert served_requests(served) == 30
    text = served.exposition()
    assert "warmset_processes 2.0" in text
    assert len([line for line in text.splitlines() if line.startswith("warmset_worker_health{")]) == 2
    assert text.count("# TYPE warmset_requests_total counter") == 1


def test_a_process_that_crashes_takes_only_its_own_streams_and_is_replaced(
    gateway: Callable[..., Gateway], slow_fleet: SimulatedFleet
) -> None:
    served = start(gateway, slow_fleet)
    ask(served, 10)
    assert served_requests(served) == 10
    before = pids(served.status())
    ended: Counter[str] = Counter()
    started = threading.Barrier(17)

    def stream() -> None:
        with OpenAI(base_url=served.data + "/v1", api_key="unused", max_retries=0) as client:
            chunks = client.chat.completions.create(model="m", messages=HELLO, max_tokens=1500, stream=True)
            next(iter(chunks))
            started.wait(20)
            try:
                ended[[chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] or "cut"] += 1
            except Exception as error:  # whatever a client sees of a server that was killed
                ended[type(error).__name__] += 1

    threads = [threading.Thread(target=stream) for _ in range(16)]
    for thread in threads:
        thread.start()
    started.wait(20)
    open_requests = served.until(
        lambda status: (
            sum(process["open_requests"] for process in status["processes"]) == 16
            and {process["pid"]: process["open_requests"] for process in status["processes"]}
        )
    )
    victim = max(open_requests, key=lambda pid: open_requests[pid])
    os.kill(victim, signal.SIGKILL)
    for thread in threads:
        thread.join(60)
    assert ended["length"] == 16 - open_requests[victim]
    after = served.until(lambda status: len(pids(status)) == 2 and pids(status))
    assert len(set(after) & set(before)) == 1
    ask(served, 10)
    assert served_requests(served) >= 20, "what the dead process counted is not forgotten"
    assert "warmset_process_restarts_total 1.0" in served.exposition()


def test_a_stuck_process_is_replaced(gateway: Callable[..., Gateway], fleet: SimulatedFleet) -> None:
    served = start(gateway, fleet)
    before = pids(served.status())
    os.kill(before[0], signal.SIGSTOP)
    after = served.until(
        lambda status: len(pids(status)) == 2 and before[0] not in pids(status) and pids(status), limit_s=40
    )
    assert before[1] in after
    ask(served, 10)


def test_all_processes_know_of_a_new_worker_and_drain_together(
    gateway: Callable[..., Gateway], fleet: SimulatedFleet
) -> None:
    served = gateway("serve", "--processes", "2")
    answer = httpx.post(served.admin + "/workers", json={"url": fleet.urls[0]})
    assert answer.status_code == 201
    served.until(lambda status: [worker["health"] for worker in status["workers"]] == ["healthy"])
    ask(served, 12)
    tree = served.tree()
    with OpenAI(base_url=served.data + "/v1", api_key="unused", max_retries=0) as client:
        streams = [
            client.chat.completions.create(model="m", messages=HELLO, max_tokens=800, stream=True) for _ in range(6)
        ]
        for chunks in streams:
            next(iter(chunks))
        served.process.send_signal(signal.SIGTERM)
        for chunks in streams:
            assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"
    assert served.wait() == 0
    assert not all_gone(tree)
