"""An engine that answers batches, for tests of cutting them up: what it answers to one input depends on that alone."""

import base64
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from tests.fakes.raw_worker import Connected

JSON_TYPE = (b"content-type", b"application/json")
OCTETS_TYPE = (b"content-type", b"application/octet-stream")

Answer = tuple[list[tuple[bytes, bytes]], bytes]


def inputs_of(document: Mapping[str, Any]) -> list[Any]:
    """One of `input`, or the pairs of `queries` and `documents`."""
    if "input" in document:
        given = document["input"]
        is_one = isinstance(given, str) or (bool(given) and isinstance(given[0], int))
        return [given] if is_one else given
    queries, documents = (
        given if isinstance(given, list) else [given] for given in (document["queries"], document["documents"])
    )
    return list(zip(queries * len(documents) if len(queries) == 1 else queries, documents, strict=True))


def vector(text: Any) -> list[float]:
    return [len(str(text)) / 7, sum(map(ord, str(text))) / 3, 1e-7]


def answer(body: bytes) -> Answer:
    """In the form of vLLM 0.32: compact JSON, or octets with the layout in a header."""
    document = json.loads(body)
    inputs = inputs_of(document)
    vectors = [vector(text) for text in inputs]
    tokens = sum(len(str(text)) for text in inputs)
    encoding = document.get("encoding_format", "float")
    if encoding.startswith("bytes"):
        octets = b"".join(struct.pack("<3f", *numbers) for numbers in vectors)
        layout = [
            {"index": number, "embed_dtype": "float32", "start": 12 * number, "end": 12 * number + 12, "shape": [3]}
            for number in range(len(inputs))
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        told = json.dumps({"id": "embd-1", "model": "m", "data": layout, "usage": usage}).encode()
        return [OCTETS_TYPE, *([(b"metadata", told)] if encoding == "bytes" else [])], octets
    outputs = [
        {"index": number, "object": "embedding", "embedding": _written(numbers, encoding)}
        for number, numbers in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0, "prompt_tokens_details": None}
    whole = {"id": "embd-1", "object": "list", "created": 5, "model": "m", "data": outputs, "usage": usage}
    text = json.dumps(whole, separators=(",", ":")).encode()
    return [(b"content-length", b"%d" % len(text)), JSON_TYPE], text


def _written(numbers: Sequence[float], encoding: str) -> object:
    return base64.b64encode(struct.pack("<3f", *numbers)).decode() if encoding == "base64" else numbers


async def engine(connection: Connected) -> None:
    """A worker of it."""
    while True:
        headers, body = answer(await connection.read_request())
        if not any(name == b"content-length" for name, _ in headers):
            headers = [*headers, (b"transfer-encoding", b"chunked")]
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        lines = b"".join(b"%s: %s\r\n" % header for header in headers)
        await connection.send(b"HTTP/1.1 200 OK\r\n" + lines + b"\r\n" + body)
