"""Numbers are the same however they are written, to the precision of what they are written in."""

import base64
import json
import math
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import pytest

from app.sim.worker.encoding import DTYPES, ENDIANNESS

TEXTS = ["my card was charged twice", "the weather is nice", "a question about billing"]
PLACES = {
    "embeddings": ("embed", "/v1/embeddings"),
    "embed": ("embed", "/pooling"),
    "classify": ("classify", "/pooling"),
}
SIZES = {"float32": 4, "float16": 2, "bfloat16": 2, "fp8_e4m3": 1, "fp8_e5m2": 1}


def decoded(pattern: bytes, dtype: str) -> float:
    """The value of one big-endian pattern, by the definition of its format."""
    if dtype in ("float32", "float16"):
        return struct.unpack(">f" if dtype == "float32" else ">e", pattern)[0]  # type: ignore[no-any-return]
    if dtype == "bfloat16":
        return decoded(pattern + b"\0\0", "float32")
    mantissa, bias = {"fp8_e4m3": (3, 7), "fp8_e5m2": (2, 15)}[dtype]
    sign = -1 if pattern[0] & 0x80 else 1
    exponent, fraction = (pattern[0] & 0x7F) >> mantissa, pattern[0] & (1 << mantissa) - 1
    if exponent == 0:
        return sign * math.ldexp(fraction, 1 - bias - mantissa)
    return sign * math.ldexp((1 << mantissa) + fraction, exponent - bias - mantissa)


def unpacked(body: bytes, dtype: str, endianness: str) -> list[float]:
    size = SIZES[dtype]
    order = sys.byteorder if endianness == "native" else endianness
    patterns = [body[at : at + size] for at in range(0, len(body), size)]
    return [decoded(pattern if order == "big" else pattern[::-1], dtype) for pattern in patterns]


def spacing(value: float, dtype: str) -> float:
    """Half the distance of the neighbours of a value."""
    mantissa, lowest = {
        "float32": (23, -126),
        "float16": (10, -14),
        "bfloat16": (7, -126),
        "fp8_e4m3": (3, -6),
        "fp8_e5m2": (2, -14),
    }[dtype]
    return math.ldexp(0.5, max(math.frexp(value)[1] - 1, lowest) - mantissa)


def numbers(answer: httpx.Response) -> list[Sequence[float]]:
    return [item["embedding" if "embedding" in item else "data"] for item in answer.json()["data"]]


@pytest.mark.parametrize("endianness", ENDIANNESS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("place", PLACES)
def test_every_encoding_carries_the_numbers(
    place: str, dtype: str, endianness: str, worker_of: Callable[[str], Any]
) -> None:
    kind, path = PLACES[place]
    url = worker_of(kind).url + path
    plain = numbers(httpx.post(url, json={"input": TEXTS}))
    wish = {"input": TEXTS, "embed_dtype": dtype, "endianness": endianness}
    in_bytes = httpx.post(url, json={**wish, "encoding_format": "bytes"})
    bare = httpx.post(url, json={**wish, "encoding_format": "bytes_only"})
    in_text = httpx.post(url, json={**wish, "encoding_format": "base64"})

    for answer in (in_bytes, bare):
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["transfer-encoding"] == "chunked"
    assert in_bytes.content == bare.content
    assert "metadata" not in bare.headers
    assert b"".join(base64.b64decode(text) for text in numbers(in_text)) == in_bytes.content  # type: ignore[arg-type]

    layout = json.loads(in_bytes.headers["metadata"])
    assert layout["usage"]["prompt_tokens"] == in_text.json()["usage"]["prompt_tokens"]
    assert layout["data"][-1]["end"] == len(in_bytes.content)
    for item, values in zip(layout["data"], plain, strict=True):
        assert (item["embed_dtype"], item["endianness"], item["shape"]) == (dtype, endianness, [len(values)])
        found = unpacked(in_bytes.content[item["start"] : item["end"]], dtype, endianness)
        assert len(found) == len(values)
        for value, exact in zip(found, values, strict=True):
            assert abs(value - exact) <= spacing(exact, dtype) if dtype != "float32" else value == exact


def test_activation_can_be_left_out(worker_of: Callable[[str], Any]) -> None:
    def ask(kind: str, path: str, **fields: Any) -> Any:
        return httpx.post(worker_of(kind).url + path, json=fields).json()

    unit, raw = (
        ask("embed", "/pooling", input="a b c", use_activation=wish)["data"][0]["data"] for wish in (True, False)
    )
    length = math.sqrt(sum(value * value for value in raw))
    assert length > 1.1
    assert [value / length for value in raw] == pytest.approx(unit, abs=1e-6)
    shares, logits = (
        ask("classify", "/classify", input="a b c", use_activation=wish)["data"][0]["probs"] for wish in (True, False)
    )
    total = sum(map(math.exp, logits))
    assert [math.exp(value) / total for value in logits] == pytest.approx(shares, abs=1e-6)
    score, logit = (
        ask("score", "/score", text_1="a b", text_2="b c", use_activation=wish)["data"][0]["score"]
        for wish in (True, False)
    )
    assert 1 / (1 + math.exp(-logit)) == pytest.approx(score)


def test_bits_of_coheres_types_are_signs(worker_of: Callable[[str], Any]) -> None:
    url = f"{worker_of('embed').url}/v2/embed"
    answer = httpx.post(url, json={"texts": TEXTS, "embedding_types": ["float", "ubinary", "binary", "base64"]}).json()
    found = answer["embeddings"]
    for values, unsigned, signed, packed in zip(
        found["float"], found["ubinary"], found["binary"], found["base64"], strict=True
    ):
        bits = "".join(f"{byte:08b}" for byte in unsigned)
        assert bits == "".join("1" if value >= 0 else "0" for value in values)
        assert signed == [byte - 128 for byte in unsigned]
        assert list(struct.unpack(f"<{len(values)}f", base64.b64decode(packed))) == values
    assert answer["texts"] == TEXTS
