"""Where workers may be, and that what the store says of it is not believed; as an operator meets it."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest
from redis import Redis

from app.commands.simulated import SimulatedFleet
from app.sim.worker.options import WorkerOptions
from tests.e2e.conftest import Command, Gateway
from tests.e2e.test_serve import ask, healthy

WORKERS = "warmset:{registry}:workers"


@pytest.fixture
def fleet() -> Iterator[SimulatedFleet]:
    with SimulatedFleet([WorkerOptions(port=0, served_model_names=("m",), speed=20)]) as started:
        yield started


def forge(store_url: str, url: str) -> str:
    """Write a registration into the store as anybody can who reaches it."""
    name = url.partition("://")[2]
    registration = {"v": 1, "id": name, "url": url, "incarnation": "f", "source": "admin"}
    with Redis.from_url(store_url) as store:
        store.hset(WORKERS, name, orjson.dumps({"until": 0, "registration": registration}).decode())
    return name


def test_workers_are_where_the_operator_allows(
    gateway: Callable[..., Gateway], fleet: SimulatedFleet, tmp_path: Any
) -> None:
    store = ("--store-dir", str(tmp_path / "store"))
    served = gateway("serve", *store, "--worker-url-allow", "localhost", "--worker-url-allow", "10.0.0.0/8:8000")
    port = fleet.urls[0].rpartition(":")[2]
    for url in ("http://169.254.169.254/", "http://10.0.0.1:8001", fleet.urls[0]):
        status, body = served.call("POST", "/workers", {"url": url})
        assert (status, body["error"]["code"], body["error"]["param"]) == (403, "worker_url_not_allowed", "url")
        assert "worker_urls" in body["error"]["message"] or "localhost, 10.0.0.0/8:8000" in body["error"]["message"]
    assert served.call("POST", "/workers", {"url": "http://0x7f.1/"})[0] == 400
    status, added = served.call("POST", "/workers", {"url": f"http://localhost:{port}"})
    assert status == 201
    served.until(healthy(1))
    (worker,) = served.status()["workers"]
    assert (worker["url"], worker["address"]) == (f"http://localhost:{port}", "127.0.0.1")
    assert worker["incarnation"].startswith(added["incarnation"].partition("@")[0])
    assert worker["incarnation"].endswith("@127.0.0.1")
    assert worker["address_problem"] is None
    assert ask(served).status_code == 200

    url = served.status()["store"]["url"]
    forged = [forge(url, where) for where in ("http://169.254.169.254:80", "http://evil.example:80")]
    malformed = forge(url, "http://10.0.0.1:8000/latest?x")
    served.until(lambda status: len(status["refused_workers"]) == 2)
    time.sleep(2)
    status = served.status()
    assert [one["id"] for one in status["workers"]] == [worker["id"]]
    assert sorted(one["id"] for one in status["refused_workers"]) == sorted(forged)
    assert malformed not in str(status["refused_workers"])
    for name in forged:
        assert served.change("DELETE", f"/workers/{name}", status=200)
    served.until(lambda status: not status["refused_workers"])


def test_what_the_configuration_contradicts_is_said_at_start(run: Callable[..., Command]) -> None:
    command = run("serve", "--worker-urls", "http://gpu-1:9000", "--worker-url-allow", "gpu-*:8000", "10.0.0.1/8")
    assert command.wait() == 2
    assert "host bits set" in command.output
    command = run("serve", "--worker-urls", "http://gpu-1:9000", "--worker-url-allow", "gpu-*:8000,10.0.0.0/8:8000")
    assert command.wait() == 2
    assert "http://gpu-1:9000 is not in worker_url_allow" in command.output
