"""The gateway under test, as a user starts it: `warmset serve` in front of all live workers."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.patience import lasting_ports
from tests.vllm.process import ServerProcess, is_healthy
from tests.vllm.workers import CHAT_MODEL, CLASSIFIER, EMBEDDING_MODEL, Workers

START_LIMIT_S = 120.0
CHECKOUT = Path(__file__).resolve().parents[2]


@contextmanager
def running(workers: Workers, logs: Path, *flags: str, is_doubled: bool = False) -> Iterator[ServerProcess]:
    """Start it, wait until it knows the models of all workers, and stop it in the end.

    is_doubled: it takes each worker for two, under two names of its address.
    """
    urls = [worker.url for worker in workers.all]
    if is_doubled:
        urls += [url.replace("127.0.0.1", "localhost") for url in urls]
    port, admin_port, prometheus_port = lasting_ports(3)
    command = (
        *(sys.executable, "-P", "-m", "app", "serve"),
        *("--worker-urls", ",".join(urls)),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--admin-port", str(admin_port), "--prometheus-port", str(prometheus_port)),
        *("--expose-routing-headers", *flags),
    )
    # Settings may also come from variables: those of whoever runs the tests are not meant for this gateway.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("WARMSET_")}
    variables["PYTHONPATH"] = str(CHECKOUT)
    gateway = ServerProcess("gateway", port, command, variables, logs)
    try:
        gateway.wait_until(is_healthy, START_LIMIT_S)
        gateway.wait_until(_knows_the_models, START_LIMIT_S)
        with httpx.Client(base_url=f"http://127.0.0.1:{admin_port}") as admin:
            gateway.wait_until(lambda _: _has_all(admin, len(urls)), START_LIMIT_S)
        yield gateway
    finally:
        gateway.begin_stop()
        gateway.finish_stop()


def _knows_the_models(client: httpx.Client) -> bool:
    listed = client.get("/v1/models").json()
    return {model["id"] for model in listed["data"]} == {CHAT_MODEL, EMBEDDING_MODEL, CLASSIFIER}


def _has_all(admin: httpx.Client, count: int) -> bool:
    workers = admin.get("/status").json()["workers"]  # which waits for the serving processes
    return [worker["health"] for worker in workers] == ["healthy"] * count
