"""POST /v2/embed (Cohere): embeddings of texts as numbers, base64 or packed bits."""

import base64
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.sim.worker.embeddings import check_dimensions
from app.sim.worker.errors import ApiError
from app.sim.worker.fields import Fields
from app.sim.worker.http import Exchange, Route
from app.sim.worker.pooled import Cut, check_cut, run_prompts
from app.sim.worker.prompts import Prompt
from app.sim.worker.simulated import SimulatedWorker
from app.sim.worker.tokens import conversation, tokenize
from app.sim.worker.turns import turns_of
from app.sim.worker.vectors import embed

TYPES = ("float", "binary", "ubinary", "base64")
TRUNCATE = ("NONE", "START", "END")
SOURCES = ("texts", "images", "inputs")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedRequest:
    """`sources`: the one of SOURCES that the client filled."""

    model: str | None
    sources: dict[str, list[Any]]
    input_type: str | None
    dimensions: int | None
    types: list[str]
    truncate: str
    most: int | None


async def embed_v2(exchange: Exchange, worker: SimulatedWorker) -> None:
    request = _read(await exchange.fields())
    worker.check_model(request.model, pooling=True)
    if request.input_type is not None:
        message = (
            f"Unsupported input_type '{request.input_type}'. "
            "This model does not define any input_type task instructions."
        )
        raise ApiError(400, message)
    limit = worker.settings.model_len
    prompts = _prompts(request.sources, worker)
    if request.truncate != "NONE":
        cut = Cut(tokens=-1 if request.most is None else request.most, from_left=request.truncate == "START")
        check_cut(cut, limit)
        prompts = [cut.of(prompt, limit) for prompt in prompts]
    for prompt in prompts:
        worker.check_length(len(prompt.tokens))
    check_dimensions(request.dimensions, worker)
    tokens = await run_prompts(exchange, worker, prompts)
    if request.truncate == "NONE":
        _check_most(prompts, request.most)
    vectors = [embed(prompt.text, worker.options.embedding_dim) for prompt in prompts]
    body = {
        "id": f"embd-{exchange.new_id()}",
        "embeddings": {kind: [_written(kind, vector) for vector in vectors] for kind in request.types},
        **{name: texts for name, texts in request.sources.items() if name == "texts"},
        "meta": {"api_version": {"version": "2"}, "billed_units": {"input_tokens": tokens, "image_tokens": 0}},
        "response_type": "embeddings_by_type",
    }
    await exchange.reply_json(body)


def _read(fields: Fields) -> EmbedRequest:
    model, input_type = fields.text("model"), fields.text("input_type")
    sources = {name: fields.items(name) for name in SOURCES if fields.get(name) is not None}
    for at, text in enumerate(sources.get("texts", ())):
        if not isinstance(text, str):
            fields.complain_type("string", "string", f"texts.{at}", text)
    dimensions = fields.integer("output_dimension")
    asked = enumerate(fields.items("embedding_types"))
    types = [fields.as_choice(f"embedding_types.{at}", kind, TYPES) for at, kind in asked] or ["float"]
    truncate = fields.setting("truncate", TRUNCATE, default="END")
    most = fields.integer("max_tokens")
    fields.check()
    if len(sources) != 1 or not any(sources.values()):
        error = ValueError("Exactly one of texts, images, or inputs must be provided, and it must be non-empty")
        fields.complain_value("", error, fields.body)
    fields.check()
    return EmbedRequest(
        model=model,
        sources=sources,
        input_type=input_type,
        dimensions=dimensions,
        types=[kind for kind in TYPES if kind in types],
        truncate=truncate,
        most=most,
    )


def _prompts(sources: dict[str, list[Any]], worker: SimulatedWorker) -> list[Prompt]:
    """Texts as they are; what may hold images is rendered as a message, and refused when it holds one."""
    if "texts" in sources:
        return [Prompt(tokenize(text)) for text in sources["texts"]]
    contents: list[object] = [[{"type": "image_url"}] for _ in sources.get("images", ())]
    contents += [item.get("content") for item in sources.get("inputs", ()) if isinstance(item, dict)]
    return [Prompt(conversation(turns_of([{"role": "user", "content": parts}], worker))) for parts in contents]


def _check_most(prompts: Sequence[Prompt], most: int | None) -> None:
    for prompt in prompts:
        if most is not None and len(prompt.tokens) > most:
            message = (
                f"Input of {len(prompt.tokens)} tokens exceeds max_tokens={most} with truncate=NONE. "
                "Set truncate to END or START to allow truncation."
            )
            raise ApiError(400, message)


def _written(kind: str, vector: Sequence[float]) -> object:
    if kind == "float":
        return list(vector)
    if kind == "base64":
        return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
    if len(vector) % 8:
        raise ApiError(
            400, f"Embedding dimension must be a multiple of 8 for binary embedding types, but got {len(vector)}."
        )
    # A bit per number, set where it is not negative, the first one highest; signed bytes begin at -128.
    bits = "".join("1" if value >= 0 else "0" for value in vector)
    packed = int(bits, 2).to_bytes(len(bits) // 8, "big")
    return [byte - 128 if kind == "binary" else byte for byte in packed]


ROUTES = (Route("POST", "/v2/embed", embed_v2, tasks=("embed",)),)
