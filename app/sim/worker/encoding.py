"""How vectors are written: JSON numbers, base64 text, or raw bytes with or without a header that says what they are."""

import base64
import json
import struct
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.sim.worker.fields import Fields
from app.sim.worker.http import Exchange, Header
from app.sim.worker.narrow import FORMATS
from app.sim.worker.usage import pooled_usage

OCTETS = b"application/octet-stream"
FORMS = ("float", "base64", "bytes", "bytes_only")
DTYPES = ("float32", *FORMATS)
ENDIANNESS = ("native", "big", "little")
_LETTERS = {1: "B", 2: "H"}


@dataclass(frozen=True, slots=True)
class Encoding:
    """`dtype` and `endianness` are for base64 and bytes; JSON numbers are what they are."""

    form: str = "float"
    dtype: str = "float32"
    endianness: str = "native"

    def pack(self, values: Sequence[float]) -> bytes:
        order = ">" if (sys.byteorder if self.endianness == "native" else self.endianness) == "big" else "<"
        if self.dtype == "float32":
            return struct.pack(f"{order}{len(values)}f", *values)
        narrow = FORMATS[self.dtype]
        patterns = (narrow.bits(value) for value in array("f", values))
        return struct.pack(f"{order}{len(values)}{_LETTERS[narrow.bytes]}", *patterns)

    def show(self, values: Sequence[float]) -> object:
        if self.form == "base64":
            return base64.b64encode(self.pack(values)).decode()
        return list(values)


def read_encoding(fields: Fields) -> Encoding:
    return Encoding(
        fields.setting("encoding_format", FORMS),
        fields.setting("embed_dtype", DTYPES),
        fields.setting("endianness", ENDIANNESS),
    )


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
        await exchange.reply_json({**head, "data": items, "usage": pooled_usage(tokens)})
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
