"""Keys and limits over whole gateways: several processes, several gateways, one store."""

import os
import signal
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from app.commands.simulated import SimulatedFleet
from app.sim.worker.options import WorkerOptions
from tests.e2e.conftest import Command, Gateway
from tests.e2e.load import Load, ask
from tests.patience import until


@pytest.fixture(scope="module")
def workers() -> Iterator[SimulatedFleet]:
    with SimulatedFleet([WorkerOptions(port=0, served_model_names=("m",), speed=1000)]) as started:
        yield started


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


LIMIT_A_MINUTE = 240.0
RATE, BURST, PROCESSES = 4, 40, 4
"""What that is: in a second, at once, and over how many processes."""

WINDOW_S = 3.0


def keeps_to(load: Load, rate: float, urls: list[str]) -> None:
    """Waits until `rate` is what is let in, while each of `urls` alone is asked for more than the whole limit.

    That is measured over the last few seconds, again and again: on a machine that stands still now and then a window in
    which it did not is as good as any. A limit that is not kept to never has one.
    """
    began = load.now

    def is_kept() -> bool:
        since = load.now - WINDOW_S
        return (
            since >= began
            and 0.7 * rate * WINDOW_S <= load.served(since) <= 1.3 * rate * WINDOW_S
            and all(load.asked(url, since) > 2 * RATE * WINDOW_S for url in urls)
        )

    until(is_kept)


def shares(gateway: Gateway) -> float:
    """Of the requests per minute, those of all its processes."""
    found = gateway.status()["tenants"]["limited"]["tenant acme"]["shares"]
    return sum(share["requests_per_minute"] for share in found)


def test_a_limit_holds_over_two_gateways_and_without_the_store(
    gateway: Callable[..., Gateway], workers: SimulatedFleet, store: tuple[str, int], tmp_path: Path
) -> None:
    """That it holds, for real. How exactly it does: tests/runtime/test_tenancy.py, on a clock that does not stumble."""
    url, store_pid = store
    keys = write(tmp_path / "keys.yaml", entry("k"), requests_per_minute=LIMIT_A_MINUTE)
    options = ("--redis-url", url, "--api-keys-file", str(keys), "--tenant-hash-key", "x" * 32)
    one, two = (start(gateway, workers, *options) for _ in range(2))
    for each in (one, two):
        each.until(lambda status: status["tenants"]["processes"] == PROCESSES)
    urls = [one.data, two.data]
    with Load(urls * 2, "k") as load:
        keeps_to(load, RATE, urls)
        # However stale their views of each other, neither gateway gives its processes more than the whole.
        assert load.served() <= BURST + PROCESSES + 2 * RATE * load.now
    assert set(load.statuses) == {200, 429}
    # All of the demand goes to one gateway, and the share follows it.
    with Load([one.data] * 4, "k", pause_s=0.01) as load:
        until(lambda: shares(one) > 0.8 * LIMIT_A_MINUTE)
        keeps_to(load, shares(one) / 60, [one.data])
        os.kill(store_pid, signal.SIGSTOP)
        try:
            one.until(lambda status: status["tenants"]["shares_by"] == "last known number of processes")
            until(lambda: shares(one) == pytest.approx(LIMIT_A_MINUTE / 2))  # one of two gateways keeps to its half
            keeps_to(load, RATE / 2, [one.data])
        finally:
            os.kill(store_pid, signal.SIGCONT)


def test_keys_are_rotated_under_load_and_a_bad_file_changes_nothing(
    gateway: Callable[..., Gateway], workers: SimulatedFleet, tmp_path: Path
) -> None:
    keys = write(tmp_path / "keys.yaml", entry("old"))
    served = start(gateway, workers, "--api-keys-file", str(keys))
    assert ask(served.data, "new") == 401
    with Load([served.data, served.data], "old") as old:
        write(keys, entry("old"), entry("new", planes=["data", "admin"]))
        wait_for_keys(served, "new", 2)
        with Load([served.data], "new") as new:
            until(lambda: new.statuses[200] > 10)
            keys.write_text("keys: [{name: broken}]")
            served.process.send_signal(signal.SIGHUP)
            problems = until(lambda: status_for(served, "new")["tenants"]["keys_file_problems"])
            assert any("tenant" in problem for problem in problems)
            assert ask(served.data, "old") == 200
            had = len(new.answers)
            until(lambda: len(new.answers) > had + 10)
    assert set(old.statuses) == set(new.statuses) == {200}
    write(keys, entry("new", planes=["data", "admin"]))
    wait_for_keys(served, "new", 1)
    until(lambda: all(ask(served.data, "old") == 401 for _ in range(6)))
    assert [ask(served.data, "new") for _ in range(6)] == [200] * 6
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
    order = {"reason": "a new driver", "expires_in_secs": 600}
    drain = f"{served.admin}/workers/{worker}/drain"
    until(lambda: httpx.post(drain, json=order, headers={"authorization": "Bearer ops"}).status_code == 200)
    served.wait_for(rf'"worker added by admin","worker":"{worker}","key":"admin"')
    served.wait_for(
        rf'"worker ordered by admin","worker":"{worker}","key":"ops","client":"[^"]+","order":"drain",'
        '"reason":"a new driver"'
    )
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
        had = load.statuses[200]
        until(lambda: load.statuses[200] > had + 20)
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
    assert ask(served.data, key) == 200
    assert ask(served.data, key[:-1]) == 401
    bad = run("key", "new", "--tenant", "a b")
    assert bad.wait() == 2
    assert "tenant: must be 1 to 100 letters" in "".join(bad.err)
    assert not bad.out


def status_for(gateway: Gateway, key: str) -> Any:
    return httpx.get(gateway.admin + "/status", headers={"authorization": f"Bearer {key}"}).json()


def wait_for_keys(gateway: Gateway, key: str, number: int) -> None:
    """Until the control process knows so many keys, and every serving process the given one."""
    until(lambda: status_for(gateway, key).get("tenants", {}).get("keys") == number)
    until(lambda: all(ask(gateway.data, key) == 200 for _ in range(10)))
