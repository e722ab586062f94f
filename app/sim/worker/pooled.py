"""What the pooling endpoints share: reading inputs, running them, and writing vectors in the asked encoding."""

import base64
import json
import struct
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from app.sim.worker.chat import messages_of
from app.sim.worker.errors import ApiError, invalid_body
from app.sim.worker.fields import Fields
from app.sim.worker.http import Exchange, Header
from app.sim.worker.simulated import SimulatedWorker, created_s
from app.sim.worker.tokens import conversation, from_ids, text_of, tokenize

OCTETS = b"application/octet-stream"
ENCODINGS = ("float", "base64", "bytes", "bytes_only")
DTYPES = ("float32", "float16", "bfloat16")
ENDIANNESS = ("native", "big", "little")


@dataclass(frozen=True, slots=True)
class Encoding:
    """How numbers are written: JSON numbers, base64 text, or raw bytes with or without a `metadata` header."""

    form: str
    dtype: str
    endianness: str

    def pack(self, values: Sequence[float]) -> bytes:
        order = {"big": ">", "little": "<", "native": "<" if sys.byteorder == "little" else ">"}[self.endianness]
        if self.dtype == "bfloat16":
            # The upper half of a float32, rounded to nearest with ties to even.
            words = struct.unpack(f"={len(values)}I", struct.pack(f"={len(values)}f", *values))
            return struct.pack(f"{order}{len(words)}H", *((w + 0x7FFF + (w >> 16 & 1)) >> 16 for w in words))
        return struct.pack(f"{order}{len(values)}{'e' if self.dtype == 'float16' else 'f'}", *values)

    def show(self, values: Sequence[float]) -> object:
        if self.form == "base64":
            return base64.b64encode(self.pack(values)).decode()
        return list(values)


def read_encoding(fields: Fields) -> Encoding:
    return Encoding(
        fields.choice("encoding_format", ENCODINGS) or "float",
        fields.choice("embed_dtype", DTYPES) or "float32",
        fields.choice("endianness", ENDIANNESS) or "native",
    )


def read_inputs(fields: Fields, worker: SimulatedWorker, *, alternatives: Sequence[str] = ("messages",)) -> list[str]:
    """The texts to pool, cut where the client allows it; token ids count as the text they spell.

    `alternatives` are the fields that may stand in for `input`, for the complaint when none is there.
    """
    if "input" not in fields.body and "messages" not in fields.body:
        fields.require("input", *alternatives)
    model, keep = fields.text("model"), fields.integer("truncate_prompt_tokens")
    fields.check()
    worker.check_model(model, pooling=True)
    has_input = "input" in fields.body
    prompts = _prompts(fields.get("input")) if has_input else [conversation(messages_of(fields, worker))]
    limit = worker.settings.model_len
    if keep is not None:
        prompts = [prompt[: limit if keep < 0 else min(keep, limit)] for prompt in prompts]
    for prompt in prompts:
        worker.check_length(len(prompt), pooling=True)
    return [text_of(prompt) for prompt in prompts]


def _prompts(value: object) -> list[list[bytes]]:
    if isinstance(value, str):
        return [tokenize(value)]
    if not isinstance(value, list):
        complaint = {"type": "string_type", "loc": "body.input", "msg": "Input should be a valid string"}
        raise invalid_body([complaint | {"input": value}])
    if not value:
        raise ApiError(400, "You must pass at least one prompt")
    if all(isinstance(item, int) for item in value):
        return [from_ids(value)]
    return [from_ids(item) if isinstance(item, list) else tokenize(str(item)) for item in value]


async def run_pooled(exchange: Exchange, worker: SimulatedWorker, texts: Iterable[str]) -> int:
    """Let the engine read the texts; the sum of their tokens."""
    counts = [len(tokenize(text)) for text in texts]
    generation = worker.pool(counts)
    async with exchange.watching(generation):
        await generation.end()
    if any(request.finish_reason == "abort" for request in generation.requests):
        raise ApiError(500, "The request was aborted by the shutdown of the engine.")
    return sum(counts)


def usage_of(tokens: int) -> dict[str, Any]:
    return {
        "prompt_tokens": tokens,
        "total_tokens": tokens,
        "completion_tokens": 0,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }


def head_of(prefix: str, exchange: Exchange, worker: SimulatedWorker) -> dict[str, Any]:
    return {
        "id": f"{prefix}-{exchange.new_id()}",
        "object": "list",
        "created": created_s(),
        "model": worker.model_name,
    }


async def reply_vectors(
    exchange: Exchange,
    head: dict[str, Any],
    vectors: Sequence[Sequence[float]],
    encoding: Encoding,
    tokens: int,
    *,
    kind: str,
    field: str,
) -> None:
    """Answer with `vectors` as JSON items `{index, object: kind, field: …}`, or as one body of bytes."""
    if encoding.form in ("float", "base64"):
        items = [{"index": index, "object": kind, field: encoding.show(values)} for index, values in enumerate(vectors)]
        await exchange.reply_json({**head, "data": items, "usage": usage_of(tokens)})
        return
    packed = [encoding.pack(values) for values in vectors]
    leading: tuple[Header, ...] = ()
    if encoding.form == "bytes":
        leading = ((b"metadata", json.dumps(_metadata(head, vectors, packed, encoding, tokens)).encode()),)
    await exchange.open_stream(OCTETS, leading)
    for body in packed:
        await exchange.write(body)
    await exchange.close_stream()


def _metadata(
    head: dict[str, Any],
    vectors: Sequence[Sequence[float]],
    packed: Sequence[bytes],
    encoding: Encoding,
    tokens: int,
) -> dict[str, Any]:
    """The layout of the bytes: where each vector starts and ends. It grows with every input, as vLLM's does."""
    items, start = [], 0
    for index, (values, body) in enumerate(zip(vectors, packed, strict=True)):
        items.append(
            {
                "index": index,
                "embed_dtype": encoding.dtype,
                "endianness": encoding.endianness,
                "start": start,
                "end": start + len(body),
                "shape": [len(values)],
            }
        )
        start += len(body)
    return {
        "id": head["id"],
        "created": head["created"],
        "model": head["model"],
        "data": items,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
