"""Every limit on what clients send, from its flag to its answer and its count, through whole processes."""

import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from app.api.body import MAX_DEPTH
from app.commands.simulated import SimulatedFleet
from app.config.settings import SETTINGS
from app.sim.worker.options import WorkerOptions
from tests.e2e.conftest import Gateway
from tests.patience import PATIENCE_S, until

BODY = b'{"model": "m", "prompt": "x", "max_tokens": 1}'


def post(body: bytes = BODY, more: bytes = b"", path: bytes = b"/v1/completions", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = b"POST %s HTTP/1.1\r\nhost: g\r\ncontent-type: application/json\r\n%sconnection: close\r\n" % (path, more)
    return head + b"content-length: %d\r\n\r\n" % size + body


def body_of(**members: Any) -> bytes:
    return json.dumps({"model": "m", "prompt": "x", "max_tokens": 1, **members}).encode()


class Limit(NamedTuple):
    """value: what the flag is given. sends: bytes beyond the limit, after which the client only reads."""

    key: str
    value: str
    sends: bytes
    status: int
    reason: str


LIMITS = (
    Limit("max_head_bytes", "2048", post(more=b"x: %s\r\n" % (b"y" * 3000)), 431, "head_too_large"),
    Limit("max_headers", "20", post(more=b"".join(b"x%d: y\r\n" % n for n in range(20))), 431, "head_too_large"),
    Limit("max_url_bytes", "300", post(path=b"/v1/completions?" + b"x" * 300), 414, "target_too_long"),
    Limit("request_head_timeout_secs", "2", b"POST /v1/completions HTTP/1.1\r\n", 408, "head_timeout"),
    Limit("min_body_bytes_per_sec", "1000", post(b"{" + b" " * 900, length=2000), 408, "body_timeout"),
    Limit("body_pace_window_secs", "1", post(b"{", length=2000), 408, "body_timeout"),
    Limit("max_connections", "12", b"", 503, "too_many_connections"),
    Limit("max_connections_per_client", "8", b"", 429, "too_many_client_connections"),
    Limit("max_body_bytes", "10000", post(body_of(pad="x" * 10_000)), 413, "body_too_large"),
    Limit("max_inflight_body_bytes", "8000", post(body_of(pad=["x" * 900] * 10)), 503, "overloaded"),
    Limit("max_batch_inputs", "4", post(body_of(prompt=["x"] * 5)), 400, "invalid_body"),
    Limit("max_n", "3", post(body_of(n=4)), 400, "invalid_body"),
    Limit("max_json_keys", "16", post(body_of(**{f"k{n}": 1 for n in range(14)})), 400, "invalid_body"),
    Limit("max_json_nodes", "1000", post(body_of(pad=["x"] * 1100)), 400, "invalid_body"),
    Limit("max_string_chars", "1024", post(body_of(prompt="x" * 1025)), 400, "invalid_body"),
    Limit("", "", post(b'{"a": %s}' % (b"[" * 300 + b"]" * 300)), 400, "invalid_body"),
)
"""The last one has no key: how deep a body may be is the parser's own bound."""

TYPES = {429: "rate_limit_error", 503: "server_error"}

NOT_OF_REQUESTS = {"write_stall_timeout_secs", "sse_keepalive_secs", "max_metadata_bytes", "max_memory_bytes"}
"""Keys of the data listener whose names are like a limit's, and that say nothing of what clients send."""


@pytest.fixture(scope="module")
def served() -> Iterator[Gateway]:
    worker = WorkerOptions(port=0, served_model_names=("m",), speed=1000)
    flags = [text for limit in LIMITS if limit.key for text in (SETTINGS[limit.key].flags[0], limit.value)]
    with SimulatedFleet([worker]) as fleet, ExitStack() as stack:
        gateway = Gateway("serve", "--worker-urls", fleet.urls[0], "--processes", "1", *flags)
        stack.callback(gateway.end)
        gateway.listening()
        gateway.until(lambda status: [worker["health"] for worker in status["workers"]] == ["healthy"])
        yield gateway


def address(gateway: Gateway) -> tuple[str, int]:
    return "127.0.0.1", int(gateway.data.rpartition(":")[2])


def answered(gateway: Gateway, sends: bytes) -> tuple[int, Any]:
    """Status and body of the one answer that comes before the gateway closes."""
    with socket.create_connection(address(gateway), timeout=PATIENCE_S) as client:
        client.sendall(sends)
        raw = b""
        while piece := client.recv(65536):
            raw += piece
    head, body = raw.split(b"\r\n\r\n", 1)
    assert raw.count(b"HTTP/1.1 ") == 1
    return int(head[9:12]), json.loads(body)


def refusals(gateway: Gateway, reason: str) -> float:
    found = re.search(rf'^warmset_refusals_total\{{reason="{reason}"\}} (\S+)$', gateway.exposition(), re.MULTILINE)
    return float(found[1]) if found else 0.0


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.key or "depth")
def test_what_is_beyond_a_limit_is_answered_and_counted(served: Gateway, limit: Limit) -> None:
    before = refusals(served, limit.reason)
    with ExitStack() as stack:
        if limit.key.startswith("max_connections"):
            # All of one client, or of two others.
            clients = ["127.0.0.1"] if limit.key.endswith("per_client") else ["127.0.0.2", "127.0.0.3"]
            for number in range(int(limit.value)):
                client = clients[number % len(clients)], 0
                stack.enter_context(socket.create_connection(address(served), PATIENCE_S, client))
        status, body = answered(served, limit.sends)
    assert (status, body["error"]["code"]) == (limit.status, limit.reason)
    assert list(body["error"]) == ["message", "type", "param", "code"]
    assert body["error"]["type"] == TYPES.get(status, "invalid_request_error")
    until(lambda: refusals(served, limit.reason) > before)
    assert refusals(served, limit.reason) == before + 1


def test_what_keeps_them_all_is_served(served: Gateway) -> None:
    more = b"".join(b"x%d: y\r\n" % number for number in range(15)) + b"z: %s\r\n" % (b"y" * 1200)
    body = body_of(prompt=["x" * 1024] * 3, n=1, pad={"deep": 1}, **{f"k{number}": 1 for number in range(11)})
    status, answer = answered(served, post(body, more, b"/v1/completions?" + b"x" * 284))
    assert (status, answer["object"]) == (200, "text_completion")


def test_no_limit_is_left_out() -> None:
    keys = {
        key
        for key, setting in SETTINGS.items()
        if setting.offer.heading == "data listener" and (key.startswith(("max_", "min_")) or key.endswith("_secs"))
    }
    assert keys - NOT_OF_REQUESTS == {limit.key for limit in LIMITS if limit.key}
    assert MAX_DEPTH < 300
