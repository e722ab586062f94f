"""Vectors in every encoding, width and byte order: the worker's own octets, and its `metadata` header."""

import json
from itertools import product
from typing import Any

import httpx
import pytest

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


def ask(url: str, path: str, body: dict[str, Any]) -> httpx.Response:
    headers = {"x-request-id": "encodings"}
    return httpx.post(url + path, json={"model": EMBEDDING_MODEL} | body, headers=headers, timeout=240)


def assert_same(through: httpx.Response, direct: httpx.Response) -> None:
    assert through.status_code == direct.status_code == 200, direct.text
    assert steady(through.content) == steady(direct.content)
    for name in ("content-type", "metadata", "content-length"):
        one, other = through.headers.get(name), direct.headers.get(name)
        assert steady((one or "").encode()) == steady((other or "").encode()), name


@pytest.mark.parametrize(("dtype", "endianness"), list(product(DTYPES, ENDIANNESS)))
@pytest.mark.parametrize(("path", "encoding"), list(product(PATHS, ENCODINGS)))
def test_every_encoding(
    path: str, encoding: str, dtype: str, endianness: str, live_workers: Workers, live_gateway: ServerProcess
) -> None:
    body = {"input": TEXTS, "encoding_format": encoding, "embed_dtype": dtype, "endianness": endianness}
    direct = ask(live_workers.embedding.url, PATHS[path], body)
    through = ask(live_gateway.url, path, body)
    assert_same(through, direct)
    if encoding.startswith("bytes"):
        assert len(through.content) == len(TEXTS) * DIMENSIONS * DTYPES[dtype]
        assert ("metadata" in through.headers) == (encoding == "bytes")


@pytest.mark.parametrize("form", INPUTS)
@pytest.mark.parametrize(("path", "encoding"), list(product(PATHS, ENCODINGS)))
def test_every_form_of_input(
    path: str, encoding: str, form: str, live_workers: Workers, live_gateway: ServerProcess
) -> None:
    body = {"input": INPUTS[form], "encoding_format": encoding}
    direct = ask(live_workers.embedding.url, PATHS[path], body)
    assert_same(ask(live_gateway.url, path, body), direct)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("encoding", ["bytes", "bytes_only"])
def test_two_thousand_inputs(path: str, encoding: str, live_workers: Workers, live_gateway: ServerProcess) -> None:
    body = {"input": [f"line {number}" for number in range(MANY)], "encoding_format": encoding}
    direct = ask(live_workers.embedding.url, PATHS[path], body)
    through = ask(live_gateway.url, path, body)
    assert_same(through, direct)
    assert len(through.content) == MANY * DIMENSIONS * 4
    if encoding == "bytes":
        layout = json.loads(through.headers["metadata"])["data"]
        assert [entry["end"] for entry in layout] == [(number + 1) * DIMENSIONS * 4 for number in range(MANY)]
