"""`warmset serve` in front of workers that come, fail and go; and a store that does the same."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI

from app.commands.simulated import SimulatedFleet
from app.sim.worker.options import WorkerOptions
from tests.e2e.conftest import Command, Gateway

HELLO = [{"role": "user", "content": "Say hello"}]
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


def test_killing_a_worker_under_load_loses_only_its_own_streams(
    gateway: Callable[..., Gateway], fleet: SimulatedFleet
) -> None:
    served = gateway("serve", "--worker-urls", ",".join(fleet.urls), "--expose-routing-headers")
    served.until(healthy(2))
    ended: dict[int, tuple[str, str]] = {}
    started = threading.Barrier(13)

    def stream(number: int) -> None:
        with OpenAI(base_url=served.data + "/v1", api_key="unused", max_retries=0) as client:
            raw = client.chat.completions.with_raw_response.create(
                model="m", messages=HELLO, max_tokens=2000, stream=True
            )
            worker = raw.headers["x-warmset-worker"]
            started.wait(20)
            try:
                reasons = [chunk.choices[0].finish_reason for chunk in raw.parse() if chunk.choices]
                ended[number] = (worker, reasons[-1] or "cut")
            except openai.APIError as error:
                ended[number] = (worker, str(error.code))

    threads = [threading.Thread(target=stream, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    started.wait(20)
    victim = fleet.urls[0].removeprefix("http://")
    fleet._children[0].process.kill()
    for thread in threads:
        thread.join(60)
    by_worker: dict[str, Counter[str]] = {}
    for worker, how in ended.values():
        by_worker.setdefault(worker, Counter())[how] += 1
    assert set(by_worker[victim]) == {"worker_stream_broken"}
    survivor = next(worker for worker in by_worker if worker != victim)
    assert set(by_worker[survivor]) == {"length"}
    assert all(ask(served).headers["x-warmset-worker"] == survivor for _ in range(10))
    served.until(healthy(1))


def test_a_worker_that_comes_back_is_another_incarnation_and_gets_requests(gateway: Callable[..., Gateway]) -> None:
    with SimulatedFleet([CHAT]) as first:
        served = gateway("serve", "--worker-urls", first.urls[0], "--health-check-interval-secs", "0.5")
        before = served.until(lambda status: healthy(1)(status) and status["workers"][0]["incarnation"])
    served.until(lambda status: status["workers"][0]["health"] == "unhealthy")
    with pytest.raises(openai.InternalServerError) as refused:
        ask(served)
    assert refused.value.code == "workers_unreachable"
    assert refused.value.response.headers["retry-after"]
    port = int(first.urls[0].rpartition(":")[2])
    again = WorkerOptions(port=port, served_model_names=("m",), speed=20)
    with SimulatedFleet([again]):
        assert served.until(lambda status: healthy(1)(status) and status["workers"][0]["incarnation"]) != before
        assert ask(served).status_code == 200


def admin(gateway: Gateway, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    request = urllib.request.Request(
        gateway.admin + path,
        method=method,
        data=json.dumps(body).encode() if body is not None else None,
        headers={"content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_workers_come_and_go_through_the_admin_api_for_all_replicas(
    gateway: Callable[..., Gateway], fleet: SimulatedFleet, tmp_path: Any
) -> None:
    one = gateway("serve", "--store-dir", str(tmp_path / "store"))
    with pytest.raises(openai.InternalServerError) as nobody:
        ask(one)
    assert nobody.value.code == "no_workers"
    two = gateway("serve", "--redis-url", one.status()["store"]["url"])
    status, added = admin(one, "POST", "/workers", {"url": fleet.urls[0]})
    assert (status, added["url"]) == (201, fleet.urls[0])
    assert admin(one, "POST", "/workers", {"url": fleet.urls[0]})[0] == 200
    for replica in (one, two):
        replica.until(healthy(1))
        assert ask(replica).status_code == 200
    assert len(two.until(lambda status: status["other_gateways"])) == 1
    assert admin(two, "DELETE", f"/workers/{added['id']}")[0] == 200
    for replica in (one, two):
        replica.until(lambda status: not status["workers"])
    assert admin(one, "DELETE", f"/workers/{added['id']}")[0] == 404
    assert admin(one, "POST", "/workers", {"url": "ftp://x"})[0] == 400


def test_a_configured_worker_that_was_deleted_stays_away_and_can_be_added_again(
    gateway: Callable[..., Gateway], fleet: SimulatedFleet
) -> None:
    served = gateway("serve", "--worker-urls", fleet.urls[0])
    worker = served.until(lambda status: healthy(1)(status) and status["workers"][0]["id"])
    assert admin(served, "DELETE", f"/workers/{worker}")[0] == 200
    time.sleep(4)
    assert not served.status()["workers"]
    assert admin(served, "POST", "/workers", {"url": fleet.urls[0]})[0] == 201
    served.until(healthy(1))


def store_pid(gateway: Gateway) -> int:
    for pid in gateway.tree():
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            if b"valkey-server" in file.read():
                return pid
    raise AssertionError("no store")


def test_a_store_that_hangs_or_dies_changes_nothing_for_clients(
    gateway: Callable[..., Gateway], fleet: SimulatedFleet
) -> None:
    served = gateway("serve", "--worker-urls", ",".join(fleet.urls))
    served.until(lambda status: healthy(2)(status) and status["store"]["state"] == "up")
    pid = store_pid(served)
    os.kill(pid, signal.SIGSTOP)
    try:
        served.until(lambda status: status["degraded"])
        assert all(ask(served).status_code == 200 for _ in range(5))
        assert "warmset_store_up 0.0" in served.exposition()
        assert "warmset_store_errors_total 0.0" not in served.exposition()
        with urllib.request.urlopen(served.metrics + "/readyz", timeout=5) as ready:
            assert ready.status == 200
        assert admin(served, "POST", "/workers", {"url": "http://127.0.0.1:9"})[0] == 503
    finally:
        os.kill(pid, signal.SIGCONT)
    served.until(lambda status: status["store"]["state"] == "up")
    os.kill(pid, signal.SIGKILL)
    assert all(ask(served).status_code == 200 for _ in range(5))
    served.until(lambda status: status["store"]["state"] == "up" and store_pid(served) != pid)
    assert healthy(2)(served.status())


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


def test_a_drained_worker_finishes_and_gets_nothing_new(gateway: Callable[..., Gateway], fleet: SimulatedFleet) -> None:
    served = gateway("serve", "--worker-urls", ",".join(fleet.urls), "--expose-routing-headers", "--processes", "2")
    served.until(healthy(2))
    with OpenAI(base_url=served.data + "/v1", api_key="unused", max_retries=0) as client:
        raw = client.chat.completions.with_raw_response.create(model="m", messages=HELLO, max_tokens=1500, stream=True)
        worker = raw.headers["x-warmset-worker"]
        status, described = admin(served, "POST", f"/workers/{worker}/drain", {})
        assert (status, described["draining"]) == (200, True)
        assert all(ask(served).headers["x-warmset-worker"] != worker for _ in range(12))
        assert [chunk.choices[0].finish_reason for chunk in raw.parse() if chunk.choices][-1] == "length"
    served.until(lambda status: all(one["in_flight"] == 0 for one in status["workers"]))
    assert admin(served, "POST", f"/workers/{worker}/resume", {})[0] == 200
    assert worker in {ask(served).headers["x-warmset-worker"] for _ in range(20)}
    assert admin(served, "POST", "/workers/nobody/drain", {})[0] == 404
