"""POST /v1/messages and /v1/messages/count_tokens (Anthropic Messages): text in, one block of text out."""

from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from app.sim.worker.driver import Generation
from app.sim.worker.errors import ApiError
from app.sim.worker.fields import Fields
from app.sim.worker.http import Exchange, Route
from app.sim.worker.sampling import Answer, Sampling, check_sampling, plan, read_sampling, submit, take_new
from app.sim.worker.simulated import SimulatedWorker
from app.sim.worker.tokens import conversation, text_of
from app.sim.worker.turns import text_of_content, turns_of

ROLES = ("user", "assistant", "system")
_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens"}

Handle = Callable[[Exchange, SimulatedWorker, Fields], Awaitable[None]]


def translated(handle: Handle) -> Callable[[Exchange, SimulatedWorker], Awaitable[None]]:
    """With the refusals of the engine layer in the shape of Anthropic's; those of validation are not translated."""

    async def guarded(exchange: Exchange, worker: SimulatedWorker) -> None:
        fields = await exchange.fields()
        fields.require("model", "messages")
        for at, message in enumerate(fields.items("messages")):
            if isinstance(message, dict):
                fields.as_choice(f"messages.{at}.role", message.get("role"), ROLES)
        try:
            await handle(exchange, worker, fields)
        except ApiError as error:
            if exchange.started or error.is_of_validation:
                raise
            refusal = {"type": "error", "error": {"type": error.kind, "message": error.message}}
            await exchange.reply(error.status, orjson.dumps(refusal))

    return guarded


@translated
async def messages(exchange: Exchange, worker: SimulatedWorker, fields: Fields) -> None:
    sampling = _read(fields)
    worker.check_model(sampling.model)
    check_sampling(sampling, worker)
    prompt = _prompt(fields, worker)
    (answer,) = plan(worker, sampling, prompt)
    generation = submit(worker, (answer,), streams=sampling.stream)
    message = {
        "id": f"chatcmpl-{exchange.new_id()}",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": worker.model_name,
    }
    async with exchange.watching(generation):
        if sampling.stream:
            await _stream(exchange, worker, message, answer, generation)
            return
        await generation.end()
    _, end = take_new(generation, answer)
    whole = {
        **message,
        "content": [{"type": "text", "text": text_of(answer.tokens[:end])}],
        # Nothing that is null is shown in an answer in one piece.
        **{name: value for name, value in _ending(answer).items() if value is not None},
        "usage": _usage(worker, answer, generation),
    }
    await exchange.reply_json(whole)


@translated
async def count_tokens(exchange: Exchange, worker: SimulatedWorker, fields: Fields) -> None:
    model = fields.text("model")
    fields.check()
    worker.check_model(model)
    count = len(_prompt(fields, worker))
    worker.check_length(count)
    await exchange.reply_json({"input_tokens": count, "context_management": {"original_input_tokens": count}})


def _read(fields: Fields) -> Sampling:
    fields.require("max_tokens")
    sampling = read_sampling(fields)
    sampling.max_tokens, sampling.max_tokens_name = fields.integer("max_tokens"), "max_completion_tokens"
    if sampling.max_tokens is not None and sampling.max_tokens <= 0:
        fields.complain_value("max_tokens", ValueError("max_tokens must be positive"), fields.get("max_tokens"))
    sampling.stop = tuple(item for item in fields.items("stop_sequences") if isinstance(item, str) and item)
    fields.check()
    return sampling


def _prompt(fields: Fields, worker: SimulatedWorker) -> list[bytes]:
    turns = turns_of(fields.items("messages"), worker, fields.get("tools"))
    system = text_of_content(fields.get("system"), worker)
    return conversation([("system", system), *turns] if system else turns)


def _ending(answer: Answer) -> dict[str, Any]:
    """Why it ended, and the stop sequence if it was one."""
    if answer.stop_reason is not None and not answer.aborted:
        return {"stop_reason": "stop_sequence", "stop_sequence": answer.stop_reason}
    return {"stop_reason": _STOP_REASONS.get(answer.finish_reason or ""), "stop_sequence": None}


def _usage(worker: SimulatedWorker, answer: Answer, generation: Generation) -> dict[str, int]:
    """Anthropic's input tokens are those that neither came out of the cache nor went into it."""
    created = answer.request.created_blocks * worker.settings.block_size
    cached = answer.request.cached_tokens
    return {
        "input_tokens": max(0, len(answer.prompt) - cached - created),
        "output_tokens": generation.generated(answer.request),
        "cache_creation_input_tokens": created,
        "cache_read_input_tokens": cached,
    }


async def _stream(
    exchange: Exchange, worker: SimulatedWorker, message: dict[str, Any], answer: Answer, generation: Generation
) -> None:
    """The message's start with the first token, one text block, the reason and the end; no `[DONE]`."""
    await exchange.open_stream()
    opened, in_block = False, False
    while answer.finish_reason is None or not opened:
        await generation.progress()
        start, end = take_new(generation, answer)
        if not opened:
            opened = True
            usage = {"input_tokens": len(answer.prompt), "output_tokens": 0}
            opening = {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}
            await _send(exchange, "message_start", {"message": opening})
        text = text_of(answer.tokens[start:end])
        if text and not in_block:
            in_block = True
            await _send(exchange, "content_block_start", {"content_block": {"type": "text", "text": ""}, "index": 0})
        if text:
            await _send(exchange, "content_block_delta", {"delta": {"type": "text_delta", "text": text}, "index": 0})
    if in_block:
        await _send(exchange, "content_block_stop", {"index": 0})
    ending = {"delta": _ending(answer), "usage": _usage(worker, answer, generation)}
    await _send(exchange, "message_delta", ending)
    await _send(exchange, "message_stop", {})
    await exchange.close_stream()


async def _send(exchange: Exchange, kind: str, payload: dict[str, Any]) -> None:
    await exchange.event({"type": kind, **payload}, name=kind)


ROUTES = (
    Route("POST", "/v1/messages", messages, tasks=("generate",)),
    Route("POST", "/v1/messages/count_tokens", count_tokens, tasks=("generate",)),
)
