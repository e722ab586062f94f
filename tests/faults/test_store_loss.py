"""What is known of workers outlives the store: stopped, emptied, killed and started again, under requests."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis import Redis, RedisError

from app.commands.simulated import SimulatedFleet
from app.sim.worker.options import WorkerOptions
from app.store.embedded import LAUNCHER
from app.store.folder import find_binary
from tests.e2e.conftest import Gateway, gateway
from tests.patience import PATIENCE_S, until

BODY = {"model": "m", "prompt": "x", "max_tokens": 2}
ORDER = {"reason": "to be looked at", "expires_in_secs": 3600}


class Server:
    """A Valkey without persistence that can be killed and started again at its address."""

    def __init__(self, folder: str) -> None:
        self._socket = Path(folder) / "s"
        self._folder = folder
        self.url = f"unix://{self._socket}"
        self.start()

    def start(self) -> None:
        launcher = [sys.executable, "-I", "-S", str(LAUNCHER), "prctl", str(os.getpid()), str(find_binary())]
        options = ["--port", "0", "--unixsocket", str(self._socket), "--save", "", "--dir", self._folder]
        self.process = subprocess.Popen(launcher + options, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        until(self._answers)

    def _answers(self) -> bool:
        assert self.process.poll() is None
        try:
            with Redis.from_url(self.url) as client:
                return bool(client.ping())
        except (OSError, RedisError):  # while the server begins
            return False

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()  # ends its pipe too
        self._socket.unlink(missing_ok=True)


@pytest.fixture
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="warmset-") as folder:
        started = Server(folder)
        yield started
        started.process.send_signal(signal.SIGCONT)
        started.kill()


@pytest.fixture(scope="module")
def fleet() -> Iterator[SimulatedFleet]:
    with SimulatedFleet([WorkerOptions(port=0, served_model_names=("m",), speed=1000)] * 3) as started:
        yield started


@contextmanager
def asking(gateways: list[Gateway]) -> Iterator[Counter[int]]:
    """Requests at both, one after the other, until the end; what they were answered with."""
    statuses: Counter[int] = Counter()
    ended = threading.Event()

    def ask(one: Gateway) -> None:
        with httpx.Client(timeout=PATIENCE_S) as client:
            while not ended.is_set():
                statuses[client.post(one.data + "/v1/completions", json=BODY).status_code] += 1

    threads = [threading.Thread(target=ask, args=(one,), daemon=True) for one in gateways]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        ended.set()
        for thread in threads:
            thread.join(PATIENCE_S)


def emptied(server: Server) -> None:
    with Redis.from_url(server.url) as client:
        client.flushall()


def killed_and_started(server: Server) -> None:
    server.kill()
    time.sleep(1.0)
    server.start()


def stopped_for_a_while(server: Server) -> None:
    server.process.send_signal(signal.SIGSTOP)
    time.sleep(5.0)
    server.process.send_signal(signal.SIGCONT)


def paused(server: Server) -> None:
    with Redis.from_url(server.url) as client:
        client.client_pause(4000)


def known(one: Gateway) -> dict[str, Any]:
    """What a gateway knows of each worker that outlives a moment."""
    workers = one.status()["workers"]
    return {
        each["id"]: (each["health"], each["order"] and (each["order"]["kind"], each["order"]["reason"]))
        for each in workers
    }


@pytest.mark.parametrize("loss", [emptied, killed_and_started, stopped_for_a_while, paused])
def test_workers_and_orders_outlive_the_store(
    loss: Callable[[Server], None], server: Server, fleet: SimulatedFleet, gateway: Callable[..., Gateway]
) -> None:
    options = ("--redis-url", server.url, "--replicas", "2", "--processes", "1")
    one = gateway("serve", "--worker-urls", fleet.urls[0], *options)
    two = gateway("serve", *options)
    for url in fleet.urls[1:]:
        one.change("POST", "/workers", {"url": url}, status=201)
    held = fleet.urls[2].removeprefix("http://")
    one.change("POST", f"/workers/{held}/cordon", ORDER, status=200)
    for each in (one, two):
        each.until(lambda status: [worker["health"] for worker in status["workers"]] == ["healthy"] * 3)
        each.until(lambda status: held not in status["pools"]["m"]["eligible"])
    before = known(one)
    assert before[held] == ("healthy", ("cordon", ORDER["reason"]))
    assert known(two) == before
    with asking([one, two]) as statuses:
        until(lambda: statuses[200] > 20)
        loss(server)
        assert known(one) == before == known(two)
        until(lambda: (one.status()["store"]["state"], two.status()["store"]["state"]) == ("up", "up"))
        seen = statuses[200]
        until(lambda: statuses[200] > seen + 20)
    assert set(statuses) == {200}
    # Whoever comes now learns all of it from the store, which was told again.
    three = gateway("serve", *options)
    until(lambda: known(three) == before)
    assert held not in three.status()["pools"]["m"]["eligible"]


__all__ = ["gateway"]
