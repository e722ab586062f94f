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
def running(workers: Workers, logs: Path) -> Iterator[ServerProcess]:
    """Start it, wait until it knows the models, and stop it in the end."""
    port, admin_port, prometheus_port = lasting_ports(3)
    command = (
        *(sys.executable, "-P", "-m", "app", "serve"),
        *("--worker-urls", ",".join(worker.url for worker in workers.all)),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--admin-port", str(admin_port), "--prometheus-port", str(prometheus_port)),
        "--expose-routing-headers",
    )
    # Settings may also come from variables: those of whoever runs the tests are not meant for this gateway.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("WARMSET_")}
    variables["PYTHONPATH"] = str(CHECKOUT)
    gateway = ServerProcess("gateway", port, command, variables, logs)
    try:
        gateway.wait_until(is_healthy, START_LIMIT_S)
        gateway.wait_until(_knows_the_models, START_LIMIT_S)
        yield gateway
    finally:
        gateway.begin_stop()
        gateway.finish_stop()


def _knows_the_models(client: httpx.Client) -> bool:
    listed = client.get("/v1/models").json()
    return {model["id"] for model in listed["data"]} == {CHAT_MODEL, EMBEDDING_MODEL, CLASSIFIER}
