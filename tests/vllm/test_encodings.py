"""Vectors in every encoding, width and byte order: the worker's own octets, and its `metadata` header."""

import json
from itertools import product
from typing import Any

import httpx
import pytest
from httpcore import HTTP11Connection

from tests.vllm.exchanges import TEXTS
from tests.vllm.process import ServerProcess
from tests.vllm.volatile import steady
from tests.vllm.workers import EMBEDDING_MODEL, Workers

PATHS = {"/v1/embeddings": "/v1/embeddings", "/pooling": "/pooling", "/v1/pooling": "/pooling"}
"""Of the gateway -> of the worker."""
ENCODINGS = ("float", "base64", "bytes", "bytes_only")
DTYPES = {"float32": 4, "float16": 2, "bfloat16": 2, "fp8_e4m3": 1, "fp8_e5m2": 1}
"""Octets of a number."""
ENDIANNESS = ("native", "big", "little")
DIMENSIONS = 384
INPUTS: dict[str, Any] = {"text": TEXTS[0], "texts": TEXTS, "tokens": [101, 2026, 102], "lists": [[101, 2026], [102]]}
MANY = 2000

# The engine adds up in another order when inputs of one request fall into other steps, as on a busy machine, and the
# last bits of its numbers differ then, between two of its own answers too. What a gateway breaks, it breaks each time.
ATTEMPTS = 6

METADATA_MAX = 1024 * 1024
"""Octets of a head that httpx shall take: that of 2,000 inputs is beyond what it takes otherwise."""


def ask(url: str, path: str, body: dict[str, Any]) -> httpx.Response:
    headers = {"x-request-id": "encodings"}
    return httpx.post(url + path, json={"model": EMBEDDING_MODEL} | body, headers=headers, timeout=240)


def assert_same(workers: Workers, gateway: ServerProcess, path: str, body: dict[str, Any]) -> httpx.Response:
    """The gateway's answer."""
    for _ in range(ATTEMPTS):
        through, direct = ask(gateway.url, path, body), ask(workers.embedding.url, PATHS[path], body)
        if through.content == direct.content or steady(through.content) == steady(direct.content):
            break
    assert through.status_code == direct.status_code == 200, direct.text
    assert steady(through.content) == steady(direct.content)
    for name in ("content-type", "metadata", "content-length"):
        one, other = through.headers.get(name), direct.headers.get(name)
        assert steady((one or "").encode()) == steady((other or "").encode()), name
    return through


@pytest.mark.parametrize(("dtype", "endianness"), list(product(DTYPES, ENDIANNESS)))
@pytest.mark.parametrize(("path", "encoding"), list(product(PATHS, ENCODINGS)))
def test_every_encoding(
    path: str, encoding: str, dtype: str, endianness: str, live_workers: Workers, live_gateway: ServerProcess
) -> None:
    body = {"input": TEXTS, "encoding_format": encoding, "embed_dtype": dtype, "endianness": endianness}
    through = assert_same(live_workers, live_gateway, path, body)
    if encoding.startswith("bytes"):
        assert len(through.content) == len(TEXTS) * DIMENSIONS * DTYPES[dtype]
        assert ("metadata" in through.headers) == (encoding == "bytes")


@pytest.mark.parametrize("form", INPUTS)
@pytest.mark.parametrize(("path", "encoding"), list(product(PATHS, ENCODINGS)))
def test_every_form_of_input(
    path: str, encoding: str, form: str, live_workers: Workers, live_gateway: ServerProcess
) -> None:
    body = {"input": INPUTS[form], "encoding_format": encoding}
    assert_same(live_workers, live_gateway, path, body)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("encoding", ["bytes", "bytes_only"])
def test_two_thousand_inputs(
    path: str, encoding: str, live_workers: Workers, live_gateway: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HTTP11Connection, "MAX_INCOMPLETE_EVENT_SIZE", METADATA_MAX)
    body = {"input": [f"line {number}" for number in range(MANY)], "encoding_format": encoding}
    through = assert_same(live_workers, live_gateway, path, body)
    assert len(through.content) == MANY * DIMENSIONS * 4
    if encoding == "bytes":
        layout = json.loads(through.headers["metadata"])["data"]
        assert [entry["end"] for entry in layout] == [(number + 1) * DIMENSIONS * 4 for number in range(MANY)]
