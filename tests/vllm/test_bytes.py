"""Through the gateway an answer has the bytes that the worker itself gives."""

import httpx
import pytest

from app.api.endpoints import ENDPOINTS
from tests.vllm.exchanges import EXCHANGES, Exchange
from tests.vllm.process import ServerProcess
from tests.vllm.volatile import steady
from tests.vllm.workers import Workers

# What a listener says of itself, and what the gateway adds; every other header is the worker's.
LISTENERS_OWN = frozenset((b"date", b"server"))
ADDED = frozenset((b"x-request-id", b"x-warmset-worker", b"x-warmset-policy", b"x-warmset-reason"))

# vLLM sends two tokens in one event when its HTTP side is a moment behind its engine, and adds up in another order when
# its threads are, as on a busy box. Only then are two of its own answers not the same bytes, so an answer gets another
# chance; what a gateway breaks, it breaks each time.
ATTEMPTS = 6


def send(url: str, exchange: Exchange, path: str = "") -> httpx.Response:
    headers = {"content-type": exchange.content_type, "x-request-id": f"bytes-{exchange.name}"}
    return httpx.post(url + (path or exchange.path), content=exchange.body, headers=headers, timeout=60)


def end_to_end(response: httpx.Response, left_out: frozenset[bytes]) -> list[tuple[bytes, bytes]]:
    raw = ((name.lower(), steady(value)) for name, value in response.headers.raw)
    return sorted(header for header in raw if header[0] not in left_out)


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.name)
def test_answer_is_the_workers(exchange: Exchange, live_workers: Workers, live_gateway: ServerProcess) -> None:
    # Each worker has seen the prompt before: `cached_tokens` is then the same whoever answers.
    for worker in live_workers.serving(exchange.model):
        assert send(worker.url, exchange, exchange.worker_path).status_code == exchange.status
    for _ in range(ATTEMPTS):
        through = send(live_gateway.url, exchange)
        worker = live_workers.by_id(through.headers["x-warmset-worker"])
        assert worker in live_workers.serving(exchange.model)
        direct = send(worker.url, exchange, exchange.worker_path)
        if steady(through.content) == steady(direct.content):
            break
    assert through.status_code == direct.status_code == exchange.status
    assert steady(through.content) == steady(direct.content)
    assert end_to_end(through, LISTENERS_OWN | ADDED) == end_to_end(direct, LISTENERS_OWN)
    assert through.headers["x-request-id"] == f"bytes-{exchange.name}"


def test_every_served_path_is_compared() -> None:
    # Forms are for models that hear, of which there is none as small as the others; tests/api/test_uploads.py has them.
    assert {endpoint.path for endpoint in ENDPOINTS if not endpoint.is_form} == {
        exchange.path for exchange in EXCHANGES
    }


def test_only_what_may_differ_is_blanked_out() -> None:
    answer = b'{"id":"chatcmpl-a","created":1796070627,"x":[{"id":"msg_0123456789abcdef"}],"text":"created 1796070627"}'
    kept = b'{"id":"chatcmpl-a","created":0000000000,"x":[{"id":"msg_0000000000000000"}],"text":"created 1796070627"}'
    assert steady(answer) == kept
