"""`--split-batches` before real vLLM: the answers are the same on and off.

The gateway that cuts takes each worker for two, so that it has where to send the parts. Their numbers may differ in the
last bits, as an engine's own do when it reads the same texts in other company.
"""

import base64
import json
from array import array
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.vllm import gateway
from tests.vllm.process import ServerProcess
from tests.vllm.workers import CLASSIFIER, EMBEDDING_MODEL, Workers

TEXTS = [f"my card was charged {number} times and {'again ' * (number % 7)}" for number in range(100)]
CLOSE = {"rel": 1e-4, "abs": 1e-5}
VECTORS = {"model": EMBEDDING_MODEL, "input": TEXTS}

ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        f"{path} {encoding}": (path, VECTORS | {"encoding_format": encoding})
        for path in ("/v1/embeddings", "/pooling")
        for encoding in ("float", "base64", "bytes", "bytes_only")
    },
    "token ids": ("/v1/embeddings", VECTORS | {"input": [[101, 2000 + number, 102] for number in range(100)]}),
    "classify": ("/v1/classify", {"model": CLASSIFIER, "input": TEXTS}),
    "pooled classes": ("/v1/pooling", {"model": CLASSIFIER, "input": TEXTS}),
    "pairs": ("/score", {"model": EMBEDDING_MODEL, "text_1": TEXTS, "text_2": TEXTS[::-1]}),
    "one query": ("/v1/score", {"model": EMBEDDING_MODEL, "queries": TEXTS[0], "documents": TEXTS}),
}


@pytest.fixture(scope="module")
def cutting(live_workers: Workers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    logs = tmp_path_factory.mktemp("cutting")
    with gateway.running(live_workers, logs, "--split-batches", "30", is_doubled=True) as started:
        yield started


def ask(server: ServerProcess, name: str) -> httpx.Response:
    path, body = ASKED[name]
    answer = httpx.post(server.url + path, json=body, headers={"x-request-id": "split"}, timeout=120)
    assert answer.status_code == 200, answer.text
    return answer


def without_numbers(document: Any, numbers: list[float]) -> Any:
    """The answer with every float, or text of octets, put into `numbers` and its place left empty."""
    if isinstance(document, dict):
        return {name: without_numbers(member, numbers) for name, member in document.items()}
    if isinstance(document, list):
        return [without_numbers(entry, numbers) for entry in document]
    if isinstance(document, float):
        numbers.append(document)
        return 0.0
    if isinstance(document, str) and len(document) > 1000:
        numbers += array("f", base64.b64decode(document))
        return ""
    return document


def read(answer: httpx.Response) -> tuple[dict[str, Any], list[float]]:
    """What an answer says beside its numbers and the time, and the numbers."""
    numbers: list[float]
    if answer.headers["content-type"] == "application/octet-stream":
        said = json.loads(answer.headers.get("metadata", "{}"))
        numbers = list(array("f", answer.content))
    else:
        numbers = []
        said = without_numbers(answer.json(), numbers)
    return {name: member for name, member in said.items() if name != "created"}, numbers


@pytest.mark.parametrize("name", ASKED)
def test_on_and_off_are_the_same(name: str, live_gateway: ServerProcess, cutting: ServerProcess) -> None:
    on, off = ask(cutting, name), ask(live_gateway, name)
    assert len(on.headers["x-warmset-worker"].split(", ")) == 4, "it was cut up"
    for header in ("content-type", "transfer-encoding"):
        assert on.headers.get(header) == off.headers.get(header), header
    (said_on, numbers_on), (said_off, numbers_off) = read(on), read(off)
    if name == "one query":
        # Every part reads the query, and the usage says so.
        usage_on, usage_off = said_on.pop("usage"), said_off.pop("usage")
        assert usage_on["prompt_tokens"] > usage_off["prompt_tokens"]
    assert said_on == said_off
    assert numbers_on == pytest.approx(numbers_off, **CLOSE)
    assert len(numbers_on) >= len(TEXTS)
