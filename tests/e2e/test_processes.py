"""Several serving processes on one port: alike for clients, one for the operator."""

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from app.commands.simulated import SimulatedFleet
from app.sim.worker.options import WorkerOptions
from tests.e2e.conftest import Gateway, await_end
from tests.e2e.streams import ENDLESS, HELLO, ask_to_end, begin, end_of, go_on
from tests.patience import until

QUICK = WorkerOptions(port=0, served_model_names=("m",), speed=20)

STUCK_S = 120.0
"""A process counts as stuck after 15 s; and then another one has to start."""


@pytest.fixture(scope="module")
def fleet() -> Iterator[SimulatedFleet]:
    with SimulatedFleet([QUICK] * 2) as started:
        yield started


@pytest.fixture
def endless_fleet() -> Iterator[SimulatedFleet]:
    with SimulatedFleet([ENDLESS] * 2) as started:
        yield started


def start(gateway: Callable[..., Gateway], *fleets: SimulatedFleet) -> Gateway:
    urls = [url for fleet in fleets for url in fleet.urls]
    served = gateway("serve", "--worker-urls", ",".join(urls), "--processes", "2")
    served.until(lambda status: [worker["health"] for worker in status["workers"]] == ["healthy"] * len(urls))
    return served


def ask(gateway: Gateway, number: int) -> None:
    """`number` requests, each over a connection of its own."""
    for _ in range(number):
        body = {"model": "m", "messages": HELLO, "max_tokens": 2}
        answer = httpx.post(gateway.data + "/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text


def served_requests(gateway: Gateway) -> float:
    name = 'warmset_requests_total{endpoint="/v1/chat/completions",model="m",status="200"} '
    return sum(float(line.removeprefix(name)) for line in gateway.exposition().splitlines() if line.startswith(name))


def pids(status: Any) -> list[int]:
    return [process["pid"] for process in status["processes"] if process["ready"]]


def test_one_scrape_counts_what_all_did(gateway: Callable[..., Gateway], fleet: SimulatedFleet) -> None:
    served = start(gateway, fleet)
    ask(served, 30)
    # A process that does not answer a scrape in time is shown as it was last.
    until(lambda: served_requests(served) == 30)
    text = served.exposition()
    assert "warmset_processes 2.0" in text
    assert len([line for line in text.splitlines() if line.startswith("warmset_worker_health{")]) == 2
    assert text.count("# TYPE warmset_requests_total counter") == 1


def test_a_process_that_crashes_takes_only_its_own_streams_and_is_replaced(
    gateway: Callable[..., Gateway], fleet: SimulatedFleet, endless_fleet: SimulatedFleet
) -> None:
    served = start(gateway, fleet, endless_fleet)
    ask(served, 10)
    until(lambda: served_requests(served) == 10)
    before = pids(served.status())
    streams = begin(served, 12)
    open_requests = served.until(
        lambda status: (
            sum(process["open_requests"] for process in status["processes"]) == 12
            and {process["pid"]: process["open_requests"] for process in status["processes"]}
        )
    )
    victim = max(open_requests, key=lambda pid: open_requests[pid])
    os.kill(victim, signal.SIGKILL)
    until(lambda: sum(bool(stream.ended) for stream in streams) == open_requests[victim])
    others = [stream for stream in streams if not stream.ended]
    go_on(others)
    after = served.until(lambda status: len(pids(status)) == 2 and victim not in pids(status) and pids(status))
    assert len(set(after) & set(before)) == 1
    ask(served, 10)
    until(lambda: served_requests(served) == 20)  # what the dead process counted is not forgotten
    assert "warmset_process_restarts_total 1.0" in served.exposition()
    ask_to_end(endless_fleet)
    assert end_of(others) <= {"abort"}
    assert not end_of([stream for stream in streams if stream not in others]) & {"abort", "length", "stop"}


def test_a_stuck_process_is_replaced(gateway: Callable[..., Gateway], fleet: SimulatedFleet) -> None:
    served = start(gateway, fleet)
    before = pids(served.status())
    os.kill(before[0], signal.SIGSTOP)
    after = served.until(
        lambda status: len(pids(status)) == 2 and before[0] not in pids(status) and pids(status), limit_s=STUCK_S
    )
    assert before[1] in after
    ask(served, 10)


def test_all_processes_know_of_a_new_worker_and_drain_together(
    gateway: Callable[..., Gateway], fleet: SimulatedFleet, endless_fleet: SimulatedFleet
) -> None:
    served = gateway("serve", "--processes", "2")
    for url in (fleet.urls[0], endless_fleet.urls[0]):
        served.change("POST", "/workers", {"url": url}, status=201)
    served.until(lambda status: [worker["health"] for worker in status["workers"]] == ["healthy"] * 2)
    ask(served, 12)
    tree = served.tree()
    streams = begin(served, 6)
    served.process.send_signal(signal.SIGTERM)
    served.wait_for('"event": ?"shutting down"')
    go_on(streams)
    ask_to_end(endless_fleet)
    assert end_of(streams) == {"abort"}
    assert served.wait() == 0
    await_end(tree)
