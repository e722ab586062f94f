"""`--sse-keepalive-secs` through whole processes, and what the metrics say of it."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.e2e.conftest import Gateway
from tests.patience import PATIENCE_S

THINKS_S = 2.5


class Slow(BaseHTTPRequestHandler):
    """A worker that thinks, and then answers as the request's prompt says: with an event stream, or an error."""

    protocol_version = "HTTP/1.1"
    may_answer = threading.Event()
    has_thought = threading.Event()

    def do_GET(self) -> None:
        self._answer(200, "application/json", json.dumps({"data": [{"id": "m", "object": "model"}]}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        # The first request waits until its client has a head, which then is the gateway's; each later one for a while.
        self.may_answer.wait(PATIENCE_S)
        time.sleep(THINKS_S if self.has_thought.is_set() else 0)
        self.has_thought.set()
        if body["prompt"] == "fail":
            self._answer(500, "application/json", json.dumps({"error": {"message": "out of memory", "type": "Oom"}}))
        else:
            chunk = {"id": "c", "object": "text_completion", "created": 1, "model": "m", "choices": []}
            self._answer(200, "text/event-stream", f"id: 7\ndata: {json.dumps(chunk)}\n\ndata: [DONE]\n\n")

    def _answer(self, status: int, kind: str, text: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def worker() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_worker_that_thinks_longer(gateway: Callable[..., Gateway], worker: str) -> None:
    served = gateway("serve", "--worker-urls", worker, "--processes", "1", "--sse-keepalive-secs", "1")
    served.until(lambda status: [worker["health"] for worker in status["workers"]] == ["healthy"])
    with OpenAI(base_url=served.data + "/v1", api_key="unused", max_retries=0) as client:
        raw = client.completions.with_raw_response.create(model="m", prompt="x", stream=True)
        assert not Slow.has_thought.is_set(), "the head came before the worker's"
        Slow.may_answer.set()
        assert [chunk.id for chunk in raw.parse()] == ["c"]
        failing = client.completions.create(model="m", prompt="fail", stream=True)
        with pytest.raises(openai.APIError, match=r"status 500: out of memory") as told:
            list(failing)
        assert (told.value.type, told.value.code) == ("Oom", "worker_error")
    name = worker.removeprefix("http://")
    wanted = {
        'warmset_requests_total{endpoint="/v1/completions",model="m",status="200"} 2.0',
        'warmset_refusals_total{reason="worker_error"} 1.0',
        f'warmset_worker_requests_total{{outcome="served",worker="{name}"}} 1.0',
        f'warmset_worker_requests_total{{outcome="failed",worker="{name}"}} 1.0',
        "warmset_requests_in_flight 0.0",
        f'warmset_worker_requests_active{{worker="{name}"}} 0.0',
    }
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and not wanted <= set(served.exposition().splitlines()):
        time.sleep(0.05)
    assert wanted <= set(served.exposition().splitlines())
    served.wait_for(r'"outcome":"failed".*"refusal":"worker_error"')
    assert "out of memory" not in served.output, "what a worker says is for the client"
