"""`warmset serve` in front of workers that come, fail and go; and a store that does the same."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from app.commands.simulated import SimulatedFleet
from app.sim.worker.options import WorkerOptions
from tests.e2e.conftest import Command, Gateway
from tests.e2e.streams import ENDLESS, HELLO, ask_to_end, begin, end_of, go_on
from tests.patience import PATIENCE_S, lasting_port, until

CHAT = WorkerOptions(port=0, served_model_names=("m",), speed=20)


@pytest.fixture
def fleet() -> Iterator[SimulatedFleet]:
    with SimulatedFleet([CHAT, CHAT]) as started:
        yield started


def healthy(count: int) -> Callable[[Any], bool]:
    return lambda status: [worker["health"] for worker in status["workers"]].count("healthy") == count


def ask(gateway: Gateway, **more: Any) -> Any:
    with OpenAI(base_url=gateway.data + "/v1", api_key="unused", max_retries=0) as client:
        return client.chat.completions.with_raw_response.create(model="m", messages=HELLO, max_tokens=2, **more)


def test_killing_a_worker_under_load_loses_only_its_own_streams(gateway: Callable[..., Gateway]) -> None:
    with SimulatedFleet([replace(ENDLESS, served_model_names=("endless", "m"))] * 2) as fleet:
        served = gateway("serve", "--worker-urls", ",".join(fleet.urls), "--expose-routing-headers")
        served.until(healthy(2))
        streams = begin(served, 12)
        victim, survivor = (url.removeprefix("http://") for url in fleet.urls)
        of = {worker: [stream for stream in streams if stream.worker == worker] for worker in (victim, survivor)}
        assert all(of.values()), "both have work"
        fleet._children[0].process.kill()
        assert end_of(of[victim]) == {"worker_stream_broken"}
        go_on(of[survivor])
        assert all(ask(served).headers["x-warmset-worker"] == survivor for _ in range(5))
        served.until(healthy(1))
        ask_to_end(fleet)
        assert end_of(of[survivor]) == {"abort"}


def test_a_worker_that_comes_back_is_another_incarnation_and_gets_requests(gateway: Callable[..., Gateway]) -> None:
    lasting = replace(CHAT, port=lasting_port())
    with SimulatedFleet([lasting]) as first:
        served = gateway("serve", "--worker-urls", first.urls[0], "--health-check-interval-secs", "0.5")
        before = served.until(lambda status: healthy(1)(status) and status["workers"][0]["incarnation"])
    served.until(lambda status: status["workers"][0]["health"] == "unhealthy")
    with pytest.raises(openai.InternalServerError) as refused:
        ask(served)
    assert refused.value.code == "workers_unreachable"
    assert refused.value.response.headers["retry-after"]
    with SimulatedFleet([lasting]):
        served.until(
            lambda status: healthy(1)(status) and status["workers"][0]["incarnation"] not in (None, "", before)
        )
        assert ask(served).status_code == 200


def test_workers_come_and_go_through_the_admin_api_for_all_replicas(
    gateway: Callable[..., Gateway], fleet: SimulatedFleet, tmp_path: Any
) -> None:
    one = gateway("serve", "--store-dir", str(tmp_path / "store"))
    with pytest.raises(openai.InternalServerError) as nobody:
        ask(one)
    assert nobody.value.code == "no_workers"
    two = gateway("serve", "--redis-url", one.status()["store"]["url"])
    added = one.change("POST", "/workers", {"url": fleet.urls[0]}, status=201)
    assert added["url"] == fleet.urls[0]
    assert one.call("POST", "/workers", {"url": fleet.urls[0]})[0] == 200
    for replica in (one, two):
        replica.until(healthy(1))
        assert ask(replica).status_code == 200
    assert len(two.until(lambda status: status["other_gateways"])) == 1
    two.change("DELETE", f"/workers/{added['id']}", status=200)
    for replica in (one, two):
        replica.until(lambda status: not status["workers"])
    assert one.call("DELETE", f"/workers/{added['id']}")[0] == 404
    assert one.call("POST", "/workers", {"url": "ftp://x"})[0] == 400


def test_a_configured_worker_that_was_deleted_stays_away_and_can_be_added_again(
    gateway: Callable[..., Gateway], fleet: SimulatedFleet
) -> None:
    served = gateway("serve", "--worker-urls", fleet.urls[0])
    worker = served.until(lambda status: healthy(1)(status) and status["workers"][0]["id"])
    served.change("DELETE", f"/workers/{worker}", status=200)
    time.sleep(4)  # its configuration is told to the store every three seconds
    assert not served.status()["workers"]
    served.change("POST", "/workers", {"url": fleet.urls[0]}, status=201)
    served.until(healthy(1))


def store_pid(gateway: Gateway) -> int | None:
    """The process id of its store, or None while there is none."""
    for pid in gateway.tree():
        with suppress(OSError):  # it has just ended
            if b"valkey-server" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
    return None


def test_a_store_that_hangs_or_dies_changes_nothing_for_clients(
    gateway: Callable[..., Gateway], fleet: SimulatedFleet
) -> None:
    served = gateway("serve", "--worker-urls", ",".join(fleet.urls))
    served.until(lambda status: healthy(2)(status) and status["store"]["state"] == "up")
    pid = store_pid(served)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        served.until(lambda status: status["degraded"])
        assert all(ask(served).status_code == 200 for _ in range(5))
        assert "warmset_store_up 0.0" in served.exposition()
        assert "warmset_store_errors_total 0.0" not in served.exposition()
        with urllib.request.urlopen(served.metrics + "/readyz", timeout=PATIENCE_S) as ready:
            assert ready.status == 200
        assert served.call("POST", "/workers", {"url": "http://127.0.0.1:9"})[0] == 503
    finally:
        os.kill(pid, signal.SIGCONT)
    served.until(lambda status: status["store"]["state"] == "up")
    os.kill(pid, signal.SIGKILL)
    assert all(ask(served).status_code == 200 for _ in range(5))
    served.until(lambda status: status["store"]["state"] == "up" and store_pid(served) not in (None, pid))
    served.until(healthy(2))


def test_a_store_that_was_never_there(gateway: Callable[..., Gateway], fleet: SimulatedFleet) -> None:
    served = gateway("serve", "--worker-urls", fleet.urls[0], "--redis-url", "redis://127.0.0.1:9")
    served.until(healthy(1))
    assert ask(served).status_code == 200
    served.until(lambda status: status["store"]["state"] == "down" and status["store"]["last_error"])


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--host", "0.0.0.0"], 2, "api_key"),
        (["--replicas", "2"], 2, "redis_url"),
        (["--polcy", "random"], 2, "--polcy"),
        (["--policy", "best", "--port", "70000"], 2, "2 problems"),
    ],
)
def test_what_cannot_be_used_is_said_at_start(
    run: Callable[..., Command], arguments: list[str], status: int, words: str
) -> None:
    command = run("serve", *arguments)
    assert command.wait() == status
    assert words in command.output


def test_connections_of_one_client_are_limited_and_counted(gateway: Callable[..., Gateway]) -> None:
    served = gateway("serve", "--processes", "1", "--max-connections-per-client", "2")
    host, _, port = served.data.partition("://")[2].rpartition(":")
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(socket.create_connection((host, int(port)), 10))
        time.sleep(0.2)
        third = stack.enter_context(socket.create_connection((host, int(port)), 10))
        answer = third.recv(65536)
        assert answer.startswith(b"HTTP/1.1 429 ")
        assert b"too_many_client_connections" in answer
    assert 'warmset_refusals_total{reason="too_many_client_connections"} 1.0' in served.exposition()


def test_an_address_that_is_taken_is_named(gateway: Callable[..., Gateway], run: Callable[..., Command]) -> None:
    served = gateway("serve")
    port = served.data.rpartition(":")[2]
    command = run("serve", "--port", port, "--admin-port", "0", "--prometheus-port", "0")
    assert command.wait() == 1
    assert f"127.0.0.1:{port}" in command.output
    assert "Traceback" not in command.output


def test_print_config_masks_secrets(run: Callable[..., Command]) -> None:
    command = run(
        "serve", "--print-config", "--port", "1234", env={"WARMSET_API_KEY": "sk-secret", "WARMSET_POLICY": "random"}
    )
    assert command.wait() == 0
    assert "port: 1234" in command.output
    assert "policy: random" in command.output
    assert "sk-secret" not in command.output


def test_version_and_help(run: Callable[..., Command]) -> None:
    report = run("version", "--json", "-")
    assert report.wait() == 0
    assert set(json.loads("".join(report.out))) == {"warmset", "python", "packages"}
    for name in ("up", "serve", "worker", "test", "version"):
        help_text = subprocess.run(
            [*report.process.args[:4], name, "--help"],  # type: ignore[index]
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": os.getcwd()},
        ).stdout
        assert help_text.startswith(f"usage: warmset {name}")


ORDER = {"reason": "a new driver", "expires_in_secs": 600}


def test_a_drained_worker_finishes_and_gets_nothing_new(gateway: Callable[..., Gateway]) -> None:
    with SimulatedFleet([replace(ENDLESS, served_model_names=("endless", "m"), speed=0.5)] * 2) as fleet:
        # In turn: by load, the one with fewer of the streams might well get everything.
        shown = ("--expose-routing-headers", "--processes", "2", "--policy", "round_robin")
        served = gateway("serve", "--worker-urls", ",".join(fleet.urls), *shown)
        served.until(healthy(2))
        streams = begin(served, 4)
        worker = fleet.urls[0].removeprefix("http://")
        mine = [stream for stream in streams if stream.worker == worker]
        assert mine, "it has work"
        described = served.change("POST", f"/workers/{worker}/drain", ORDER, status=200)
        assert described["order"]["kind"] == "drain"
        assert described["order"]["reason"] == ORDER["reason"]
        until(lambda: served.call("GET", f"/workers/{worker}")[1]["requests_left"] == len(mine))
        assert all(ask(served).headers["x-warmset-worker"] != worker for _ in range(12))
        go_on(mine)
        served.change("POST", f"/workers/{worker}/uncordon", {}, status=200)
        until(lambda: ask(served).headers["x-warmset-worker"] == worker)
        assert served.call("POST", "/workers/nobody/drain", ORDER)[0] == 404
        ask_to_end(fleet)
        assert end_of(mine) == {"abort"}
    served.until(lambda status: all(one["in_flight"] == 0 for one in status["workers"]))
