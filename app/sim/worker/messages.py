"""POST /v1/messages (Anthropic Messages): text in, one block of text out."""

from typing import Any

import orjson

from app.sim.worker.chat import messages_of, text_of_content
from app.sim.worker.driver import Generation
from app.sim.worker.errors import ApiError
from app.sim.worker.http import Exchange, Route
from app.sim.worker.sampling import Answer, check_sampling, plan, read_sampling, submit, take_new
from app.sim.worker.simulated import SimulatedWorker
from app.sim.worker.tokens import conversation, text_of

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens"}


async def messages(exchange: Exchange, worker: SimulatedWorker) -> None:
    fields = await exchange.fields()
    fields.require("model", "messages", "max_tokens")
    sampling = read_sampling(fields)
    sampling.max_tokens = fields.integer("max_tokens")
    sampling.stop = tuple(item for item in fields.items("stop_sequences") if isinstance(item, str) and item)
    fields.items("messages")
    fields.check()
    try:
        worker.check_model(sampling.model)
        check_sampling(sampling, worker)
        turns = messages_of(fields, worker)
        system = text_of_content(fields.get("system"), worker)
        prompt = conversation([("system", system), *turns] if system else turns)
        (answer,) = plan(worker, sampling, prompt)
        generation = submit(worker, (answer,), streams=sampling.stream)
    except ApiError as error:
        # Refusals of the engine layer are translated for Anthropic's clients; those of validation are not.
        refusal = {"type": "error", "error": {"type": error.kind, "message": error.message}}
        await exchange.reply(error.status, orjson.dumps(refusal))
        return
    message = {
        "id": f"chatcmpl-{exchange.new_id()}",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": worker.model_name,
    }
    async with exchange.watching(generation):
        if sampling.stream:
            await _stream(exchange, message, answer, generation)
            return
        await generation.end()
    _, end = take_new(generation, answer)
    whole = {
        **message,
        "content": [{"type": "text", "text": text_of(answer.tokens[:end])}],
        "stop_reason": _STOP_REASONS.get(answer.finish_reason or ""),
        "usage": {
            "input_tokens": len(prompt),
            "output_tokens": generation.generated(answer.request),
            "cache_creation_input_tokens": answer.request.created_blocks * worker.settings.block_size,
            "cache_read_input_tokens": answer.request.cached_tokens,
        },
    }
    await exchange.reply_json(whole)


async def _stream(exchange: Exchange, message: dict[str, Any], answer: Answer, generation: Generation) -> None:
    """The message's start with the first token, one text block, the reason, the end, and `[DONE]` as vLLM adds it."""
    await exchange.open_stream()
    opened = False
    while answer.finish_reason is None or not opened:
        await generation.progress()
        start, end = take_new(generation, answer)
        if not opened:
            opened = True
            usage = {"input_tokens": len(answer.prompt), "output_tokens": 0}
            opening = {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}
            await _send(exchange, "message_start", {"message": opening})
            block = {"type": "text", "text": ""}
            await _send(exchange, "content_block_start", {"index": 0, "content_block": block})
        if end > start:
            delta = {"type": "text_delta", "text": text_of(answer.tokens[start:end])}
            await _send(exchange, "content_block_delta", {"index": 0, "delta": delta})
    await _send(exchange, "content_block_stop", {"index": 0})
    usage = {"input_tokens": len(answer.prompt), "output_tokens": generation.generated(answer.request)}
    ending = {"stop_reason": _STOP_REASONS.get(answer.finish_reason or "")}
    await _send(exchange, "message_delta", {"delta": ending, "usage": usage})
    await _send(exchange, "message_stop", {})
    await exchange.close_stream(b"data: [DONE]\n\n")


async def _send(exchange: Exchange, kind: str, payload: dict[str, Any]) -> None:
    await exchange.event({"type": kind, **payload}, name=kind)


ROUTES = (Route("POST", "/v1/messages", messages, tasks=("generate",)),)
