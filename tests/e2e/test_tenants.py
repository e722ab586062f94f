"""Keys and limits over whole gateways: several processes, several gateways, one store."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from app.commands.simulated import SimulatedFleet
from app.sim.worker.options import WorkerOptions
from app.store.embedded import LAUNCHER
from app.store.folder import find_binary
from tests.e2e.conftest import Command, Gateway

BODY = {"model": "m", "messages": [{"role": "user", "content": "Say hello"}], "max_tokens": 2}


@pytest.fixture(scope="module")
def workers() -> Iterator[SimulatedFleet]:
    with SimulatedFleet([WorkerOptions(port=0, served_model_names=("m",), speed=1000)]) as started:
        yield started


@pytest.fixture
def store() -> Iterator[tuple[str, int]]:
    """A Valkey of this test: its URL and its process id."""
    with tempfile.TemporaryDirectory(prefix="warmset-") as folder:
        socket = Path(folder) / "s"
        launcher = [sys.executable, "-I", "-S", str(LAUNCHER), "prctl", str(os.getpid()), str(find_binary())]
        options = ["--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", folder]
        with subprocess.Popen(launcher + options, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as server:
            while not socket.exists():
                assert server.poll() is None
                time.sleep(0.01)
            yield f"unix://{socket}", server.pid
            server.kill()


def entry(name: str, **more: Any) -> dict[str, Any]:
    """The key of this entry is its name."""
    return {"name": name, "tenant": "acme", "sha256": sha256(name.encode()).hexdigest(), **more}


def write(path: Path, *entries: dict[str, Any], **limits: Any) -> Path:
    """At once, as an operator's tools do it: by renaming."""
    text = yaml.safe_dump({"keys": list(entries), "tenants": {"acme": limits} if limits else {}})
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)
    return path


def start(gateway: Callable[..., Gateway], workers: SimulatedFleet, *more: str) -> Gateway:
    served = gateway("serve", "--worker-urls", ",".join(workers.urls), "--processes", "2", *more)
    served.until(lambda status: [worker["health"] for worker in status["workers"]] == ["healthy"])
    return served


def ask(url: str, key: str) -> httpx.Response:
    """Over a connection of its own, so that any process may get it."""
    return httpx.post(f"{url}/v1/chat/completions", json=BODY, headers={"authorization": f"Bearer {key}"}, timeout=10)


class Load:
    """Asks again and again until told to stop. `answers`: (seconds since the start, status)."""

    def __init__(self, urls: list[str], key: str, pause_s: float = 0.04) -> None:
        self.answers: list[tuple[float, int]] = []
        self._began = time.monotonic()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(url, key, pause_s)) for url in urls]
        for thread in self._threads:
            thread.start()

    def _run(self, url: str, key: str, pause_s: float) -> None:
        while not self._stop.is_set():
            try:
                status = ask(url, key).status_code
            except httpx.TransportError:
                status = 0  # cut off by a process that was killed
            self.answers.append((time.monotonic() - self._began, status))
            time.sleep(pause_s)

    def __enter__(self) -> "Load":
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def served(self, after_s: float = 0.0, before_s: float = float("inf")) -> int:
        return sum(status == 200 for at, status in self.answers if after_s <= at < before_s)

    @property
    def statuses(self) -> Counter[int]:
        return Counter(status for _, status in self.answers)


def test_a_limit_holds_over_two_gateways_and_without_the_store(
    gateway: Callable[..., Gateway], workers: SimulatedFleet, store: tuple[str, int], tmp_path: Path
) -> None:
    url, store_pid = store
    keys = write(tmp_path / "keys.yaml", entry("k"), requests_per_minute=240)
    options = ("--redis-url", url, "--api-keys-file", str(keys), "--tenant-hash-key", "x" * 32)
    one, two = (start(gateway, workers, *options) for _ in range(2))
    for each in (one, two):
        each.until(lambda status: status["tenants"]["processes"] == 4)
    # 4 a second, and 10 s worth at once: in 5 s at most 60, however many processes are asked.
    with Load([one.data, two.data, one.data, two.data], "k") as load:
        time.sleep(5)
    assert set(load.statuses) == {200, 429}
    # Not all of the 10 s: what a process has saved up is lost when its share shrinks.
    assert 18 <= load.served(before_s=5) <= 68, "at least the rate; 60 and what shares on their way let through"
    # All of the demand goes to one gateway, and the share follows it.
    with Load([one.data, one.data], "k") as load:
        time.sleep(7)
    assert 11 <= load.served(after_s=3) <= 22, "16 in 4 s: nearly the whole limit"
    shares = one.status()["tenants"]["limited"]["tenant acme"]["shares"]
    assert sum(share["requests_per_minute"] for share in shares) > 180
    os.kill(store_pid, signal.SIGSTOP)
    try:
        with Load([one.data, one.data], "k") as load:
            time.sleep(11)
        assert one.status()["tenants"]["shares_by"] == "last known number of processes"
        assert 4 <= load.served(after_s=7) <= 12, "8 in 4 s: one of two gateways keeps to its half"
    finally:
        os.kill(store_pid, signal.SIGCONT)


def test_keys_are_rotated_under_load_and_a_bad_file_changes_nothing(
    gateway: Callable[..., Gateway], workers: SimulatedFleet, tmp_path: Path
) -> None:
    keys = write(tmp_path / "keys.yaml", entry("old"))
    served = start(gateway, workers, "--api-keys-file", str(keys))
    assert ask(served.data, "new").status_code == 401
    with Load([served.data, served.data], "old") as old:
        write(keys, entry("old"), entry("new", planes=["data", "admin"]))
        _wait_for_keys(served, "new", 2)
        with Load([served.data], "new") as new:
            time.sleep(0.5)
            keys.write_text("keys: [{name: broken}]")
            served.process.send_signal(signal.SIGHUP)
            problems = _wait(lambda: _status(served, "new")["tenants"]["keys_file_problems"])
            assert any("tenant" in problem for problem in problems)
            assert ask(served.data, "old").status_code == 200
            time.sleep(0.3)
    assert set(old.statuses) == set(new.statuses) == {200}
    write(keys, entry("new", planes=["data", "admin"]))
    _wait_for_keys(served, "new", 1)
    _wait(lambda: ask(served.data, "old").status_code == 401)
    assert [ask(served.data, "new").status_code for _ in range(6)] == [200] * 6
    assert httpx.get(served.admin + "/status", headers={"authorization": "Bearer old"}).status_code == 401
    assert "new" in served.output
    assert sha256(b"new").hexdigest() not in served.output


def test_the_log_says_who_changed_a_worker(
    gateway: Callable[..., Gateway], workers: SimulatedFleet, tmp_path: Path
) -> None:
    keys = write(tmp_path / "keys.yaml", entry("ops", planes=["admin"]))
    served = gateway("serve", "--api-keys-file", str(keys), "--admin-api-key", "sesame")
    added = httpx.post(
        f"{served.admin}/workers", json={"url": workers.urls[0]}, headers={"authorization": "Bearer sesame"}
    )
    assert added.status_code == 201
    worker = added.json()["id"]
    drain = f"{served.admin}/workers/{worker}/drain"
    _wait(lambda: httpx.post(drain, headers={"authorization": "Bearer ops"}).status_code == 200)
    served.wait_for(rf'"worker added by admin","worker":"{worker}","key":"admin"')
    served.wait_for(rf'"worker drained by admin","worker":"{worker}","key":"ops"')
    assert "sesame" not in served.output


def test_a_process_that_is_replaced_knows_the_keys(
    gateway: Callable[..., Gateway], workers: SimulatedFleet, tmp_path: Path
) -> None:
    keys = write(tmp_path / "keys.yaml", entry("k"))
    served = start(gateway, workers, "--api-keys-file", str(keys))
    with Load([served.data], "k") as load:
        victim = served.status()["processes"][0]["pid"]
        os.kill(victim, signal.SIGTERM)  # ignored: the control process says when to end
        os.kill(victim, signal.SIGKILL)
        served.until(lambda status: all(p["ready"] and p["pid"] != victim for p in status["processes"]))
        time.sleep(0.5)
    assert load.statuses[200] > 10
    assert not load.statuses.keys() - {200, 0}


def test_warmset_key_new_makes_a_key_that_works(
    run: Callable[..., Command], gateway: Callable[..., Gateway], workers: SimulatedFleet, tmp_path: Path
) -> None:
    made = run("key", "new", "--tenant", "acme", "--models", "n*", "m")
    assert made.wait() == 0
    key = made.out[0].strip()
    printed = yaml.safe_load("keys:\n" + "".join(line for line in made.err if line.startswith("  ")))
    assert key not in "".join(made.err)
    keys = write(tmp_path / "keys.yaml", *printed["keys"])
    served = start(gateway, workers, "--api-keys-file", str(keys))
    assert ask(served.data, key).status_code == 200
    assert ask(served.data, key[:-1]).status_code == 401
    bad = run("key", "new", "--tenant", "a b")
    assert bad.wait() == 2
    assert "tenant: must be 1 to 100 letters" in "".join(bad.err)
    assert not bad.out


def _status(gateway: Gateway, key: str) -> Any:
    return httpx.get(gateway.admin + "/status", headers={"authorization": f"Bearer {key}"}).json()


def _wait_for_keys(gateway: Gateway, key: str, number: int) -> None:
    _wait(lambda: _status(gateway, key).get("tenants", {}).get("keys") == number)
    time.sleep(0.2)  # the message is on its way to the serving processes


def _wait(what: Callable[[], Any], limit_s: float = 15) -> Any:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        found = what()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("never came")
