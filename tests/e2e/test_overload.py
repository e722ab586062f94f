"""Workers that say that they take no more, or fail, through whole processes: out at once, everywhere, and back."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import Gateway
from tests.patience import PATIENCE_S, until

BUSY = 50
"""Waiting requests that are too many to have an engine back early, and too few to spare it for."""

BODY = {"model": "m", "prompt": "x", "max_tokens": 1}


class Engine(ThreadingHTTPServer):
    """Says what vLLM says, and answers requests with what the test wants. served: statuses of its answers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.status = 200
        self.headers: dict[str, str] = {}
        self.served: Counter[int] = Counter()
        self.waiting = 0
        self.steps = 0
        self.is_awake = 1
        self.started = time.time()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.id = self.url.removeprefix("http://")
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Engine

    def do_GET(self) -> None:
        engine = self.server
        metrics = (
            f"process_start_time_seconds {engine.started}\n"
            f"vllm:num_requests_running 0.0\nvllm:num_requests_waiting {engine.waiting}\n"
            f"vllm:iteration_tokens_total_count {engine.steps}\n"
            f'vllm:engine_sleep_state{{sleep_state="awake"}} {engine.is_awake}\n'
        )
        said = {
            "/health": "",
            "/metrics": metrics,
            "/version": '{"version":"0.32.0"}',
            "/v1/models": '{"object":"list","data":[{"id":"m","object":"model"}]}',
        }
        self._say(200 if self.path in said else 404, said.get(self.path, ""))

    def do_POST(self) -> None:
        engine = self.server
        self.rfile.read(int(self.headers["content-length"]))
        engine.served[engine.status] += 1
        self._say(engine.status, json.dumps({"by": engine.id}), engine.headers)

    def _say(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def engines() -> Iterator[list[Engine]]:
    started = [Engine() for _ in range(3)]
    yield started
    for engine in started:
        engine.shutdown()
        engine.server_close()


def serve(gateway: Callable[..., Gateway], engines: list[Engine], *more: str) -> Gateway:
    served = gateway("serve", "--worker-urls", *(engine.url for engine in engines), *more)
    served.until(lambda status: [worker["health"] for worker in status["workers"]] == ["healthy"] * len(engines))
    return served


def ask(served: Gateway) -> httpx.Response:
    return httpx.post(served.data + "/v1/completions", json=BODY, timeout=PATIENCE_S)


def of(served: Gateway, engine: Engine) -> dict[str, Any]:
    found: dict[str, Any] = next(worker for worker in served.status()["workers"] if worker["id"] == engine.id)
    return found


def test_a_worker_that_takes_no_more_is_out_for_its_time_in_all_processes_and_comes_back(
    gateway: Callable[..., Gateway], engines: list[Engine]
) -> None:
    full, *others = engines
    full.status, full.headers = 429, {"retry-after": "20"}
    full.waiting = BUSY
    served = serve(gateway, engines, "--processes", "2", "--policy", "round_robin")
    until(lambda: ask(served).status_code == 200 and full.served[429])
    marked = until(lambda: of(served, full)["marks"])
    assert (marked[0]["kind"], of(served, full)["state"]) == ("overload", "marked")
    assert 10 < marked[0]["for_s"] <= 24
    before = full.served[429]
    assert {ask(served).status_code for _ in range(40)} == {200}, "what it refused was asked of another"
    assert full.served[429] == before, "neither process asks it again"
    metrics = served.exposition()
    assert f'warmset_worker_marks_total{{kind="overload",worker="{full.id}"}}' in metrics
    assert "warmset_retries_total" in metrics
    # It is well again, and its own numbers say so: that is enough, long before its time is over.
    full.status, full.waiting = 200, 0
    until(lambda: ask(served).status_code == 200 and full.served[200])
    assert of(served, full)["state"] in ("ramp", "trial", "clear")
    assert all(engine.served[200] for engine in others)


def test_an_idle_worker_comes_back_without_a_request(gateway: Callable[..., Gateway], engines: list[Engine]) -> None:
    full = engines[0]
    full.status, full.headers = 503, {"retry-after": "1"}
    served = serve(gateway, engines, "--processes", "1")
    until(lambda: ask(served).status_code == 200 and full.served[503])
    full.status = 200
    served.until(lambda status: status["pools"]["m"]["eligible"] == sorted(engine.id for engine in engines))
    assert full.served[200] == 0


def test_when_all_take_no_more_clients_are_told_when_to_come_back(
    gateway: Callable[..., Gateway], engines: list[Engine]
) -> None:
    for engine in engines:
        engine.status, engine.headers, engine.waiting = 429, {"retry-after": "30"}, BUSY
    served = serve(gateway, engines, "--processes", "1")
    refused = until(lambda: (answer := ask(served)).json().get("error") and answer)
    assert refused.status_code == 429
    error = refused.json()["error"]
    assert (error["type"], error["code"], error["param"]) == ("rate_limit_error", "workers_overloaded", None)
    assert 20 <= int(refused.headers["retry-after"]) <= 36
    assert served.status()["pools"]["m"]["shed"]
    # Some requests go through all the same: so it is noticed that the workers are well again.
    for engine in engines:
        engine.status, engine.headers = 200, {}
    until(lambda: ask(served).status_code == 200)


def test_a_worker_that_fails_in_a_moment_does_not_draw_all_traffic(
    gateway: Callable[..., Gateway], engines: list[Engine]
) -> None:
    """A black hole: least loaded of all, since it is done with everything at once."""
    hole = engines[0]
    hole.status = 500
    served = serve(gateway, engines, "--processes", "1", "--policy", "least_load")
    statuses = Counter(ask(served).status_code for _ in range(120))
    assert statuses[500] == hole.served[500] <= 10, "five in a row, and a trial when five seconds are over"
    assert of(served, hole)["health"] == "healthy"
    assert {mark["kind"] for mark in of(served, hole)["marks"]} <= {"failing"}


def test_what_one_gateway_learns_the_other_knows(
    gateway: Callable[..., Gateway], engines: list[Engine], store: tuple[str, int]
) -> None:
    full = engines[0]
    full.status, full.headers, full.waiting = 429, {"retry-after": "30"}, BUSY
    options = ("--processes", "1", "--policy", "round_robin", "--redis-url", store[0])
    one, two = (serve(gateway, engines, *options) for _ in range(2))
    until(lambda: ask(one).status_code == 200 and full.served[429])
    before = full.served[429]
    (mark,) = until(lambda: of(two, full)["marks"])
    assert mark["kind"] == "overload"
    assert mark["by"].startswith(one.status()["gateway"])
    assert {ask(two).status_code for _ in range(9)} == {200}
    assert full.served[429] == before


def test_an_engine_that_has_work_and_gets_nowhere_is_left_alone_until_it_does(
    gateway: Callable[..., Gateway], engines: list[Engine]
) -> None:
    """It takes connections, and says that it is healthy."""
    wedged = engines[0]
    served = serve(gateway, engines, "--processes", "2", "--stall-timeout-secs", "2")
    wedged.waiting, wedged.steps = 1, 7
    served.until(lambda status: wedged.id not in status["pools"]["m"]["eligible"])
    described = of(served, wedged)
    assert (described["health"], described["stuck"], described["load"]["stalled_s"] >= 2) == ("healthy", True, True)
    before = wedged.served.total()
    assert {ask(served).status_code for _ in range(30)} == {200}
    assert wedged.served.total() == before
    wedged.steps = 8
    served.until(lambda status: wedged.id in status["pools"]["m"]["eligible"])


def test_a_model_that_sleeps_is_refused_at_once_in_place_of_a_request_that_hangs(
    gateway: Callable[..., Gateway], engines: list[Engine]
) -> None:
    served = serve(gateway, engines, "--processes", "2")
    for engine in engines:
        engine.is_awake = 0
    served.until(lambda status: not status["pools"]["m"]["eligible"])
    until(lambda: ask(served).status_code == 503)
    assert ask(served).json()["error"]["code"] == "no_workers"
    for engine in engines:
        engine.is_awake = 1
    until(lambda: {ask(served).status_code for _ in range(4)} == {200})
