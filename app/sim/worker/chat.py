"""POST /v1/chat/completions."""

from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from app.sim.worker.driver import Generation
from app.sim.worker.errors import ApiError, bad_value
from app.sim.worker.fields import Fields
from app.sim.worker.http import Exchange, Route
from app.sim.worker.logprobs import chat_logprobs
from app.sim.worker.sampling import Answer, Sampling, check_sampling, plan, read_sampling, submit, take_new
from app.sim.worker.simulated import SimulatedWorker, created_s
from app.sim.worker.tokens import conversation, text_of, token_ids
from app.sim.worker.usage import Usage


async def chat_completions(exchange: Exchange, worker: SimulatedWorker) -> None:
    fields = await exchange.fields()
    sampling = _read(fields)
    worker.check_model(sampling.model)
    check_sampling(sampling, worker)
    prompt = conversation(messages_of(fields, worker))
    answers = plan(worker, sampling, prompt)
    generation = submit(worker, answers, streams=sampling.stream)
    head = {
        "id": f"chatcmpl-{exchange.new_id()}",
        "object": "chat.completion.chunk" if sampling.stream else "chat.completion",
        "created": created_s(),
        "model": worker.model_name,
    }
    async with exchange.watching(generation):
        if sampling.stream:
            await _stream(exchange, worker, sampling, answers, generation, head)
            return
        await generation.end()
    choices = [_choice(worker, sampling, answer, generation) for answer in answers]
    body = {
        **head,
        "choices": choices,
        "service_tier": None,
        "system_fingerprint": worker.system_fingerprint,
        "usage": Usage(worker, generation, answers, sampling.n).whole(created=True),
        "prompt_logprobs": None,
        "prompt_token_ids": token_ids(prompt) if sampling.return_token_ids else None,
        "prompt_text": None,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": None,
    }
    await exchange.reply_json(body)


def messages_of(fields: Fields, worker: SimulatedWorker) -> list[tuple[str, str]]:
    """(role, text) of each message, with the tools in front, where a chat template would render them."""
    messages = [
        (str(message.get("role", "")), text_of_content(message.get("content"), worker))
        for message in fields.items("messages")
        if isinstance(message, dict)
    ]
    if not messages:
        raise ApiError(400, "Cannot apply chat template to an empty conversation. Provide at least one message.")
    tools = fields.get("tools")
    return [("tools", orjson.dumps(tools).decode()), *messages] if tools else messages


def text_of_content(content: object, worker: SimulatedWorker) -> str:
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, dict)]
        if any(part.get("type") not in ("text", "input_text", "output_text", "refusal", None) for part in parts):
            raise ApiError(400, f"{worker.model_name} is not a multimodal model")
        return "\n".join(str(part.get("text", "")) for part in parts)
    return content if isinstance(content, str) else ""


def _read(fields: Fields) -> Sampling:
    fields.require("messages")
    fields.items("messages")
    sampling = read_sampling(fields)
    older = fields.integer("max_tokens")
    newer = fields.integer("max_completion_tokens")
    sampling.max_tokens = older if newer is None else newer
    top = fields.integer("top_logprobs")
    wanted = fields.flag("logprobs")
    fields.check()
    if fields.get("stream_options") is not None and not sampling.stream:
        raise bad_value("Stream options can only be defined when `stream=True`.", "stream_options")
    for name, given in (("top_logprobs", top), ("logprob_token_ids", sampling.logprob_token_ids)):
        if given and not wanted:
            raise bad_value(f"when using `{name}`, `logprobs` must be set to true.", name)
    sampling.top_logprobs = (top or 0) if wanted else None
    return sampling


def _choice(worker: SimulatedWorker, sampling: Sampling, answer: Answer, generation: Generation) -> dict[str, Any]:
    _, end = take_new(generation, answer)
    return {
        "index": answer.index,
        "message": {
            "role": "assistant",
            "content": text_of(answer.tokens[:end]),
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "reasoning": None,
        },
        "logprobs": chat_logprobs(worker, sampling, answer, 0, end),
        "finish_reason": answer.finish_reason,
        "stop_reason": None if answer.aborted else answer.stop_reason,
        "token_ids": token_ids(answer.tokens[:end]) if sampling.return_token_ids else None,
        "routed_experts": None,
    }


async def _stream(
    exchange: Exchange,
    worker: SimulatedWorker,
    sampling: Sampling,
    answers: Sequence[Answer],
    generation: Generation,
    head: dict[str, Any],
) -> None:
    """Role chunks when the first token is there, then what each step brought, usage, `[DONE]`."""
    await exchange.open_stream()
    opened = False
    while not opened or any(not answer.closed for answer in answers):
        await generation.progress()
        if not opened:
            opened = True
            for chunk in _roles(sampling, answers, head):
                await exchange.event(chunk)
        for answer in answers:
            if not answer.closed:
                news = _chunk(worker, sampling, answer, generation, head)
                if news is not None:
                    await exchange.event(news)
    if sampling.include_usage:
        usage = Usage(worker, generation, answers, sampling.n).final(created=True)
        await exchange.event({**head, "choices": [], "usage": usage, "system_fingerprint": worker.system_fingerprint})
    await exchange.close_stream(b"data: [DONE]\n\n")


def _roles(sampling: Sampling, answers: Sequence[Answer], head: dict[str, Any]) -> Iterator[dict[str, Any]]:
    prompt = answers[0].prompt
    for answer in answers:
        delta = {"role": "assistant", "content": ""}
        chunk: dict[str, Any] = {
            **head,
            "choices": [{"index": answer.index, "delta": delta, "logprobs": None, "finish_reason": None}],
        }
        if sampling.continuous_usage:
            chunk["usage"] = Usage.running(len(prompt), 0)
        yield {
            **chunk,
            "prompt_token_ids": token_ids(prompt) if sampling.return_token_ids else None,
            "prompt_text": None,
        }


def _chunk(
    worker: SimulatedWorker, sampling: Sampling, answer: Answer, generation: Generation, head: dict[str, Any]
) -> dict[str, Any] | None:
    """The chunk of what is new in `answer`, None when nothing is; the last one carries the reason it ended."""
    start, end = take_new(generation, answer)
    reason = answer.finish_reason
    if start == end and reason is None:
        return None
    choice: dict[str, Any] = {
        "index": answer.index,
        "delta": {"content": text_of(answer.tokens[start:end])},
        "logprobs": chat_logprobs(worker, sampling, answer, start, end) if end > start else None,
        "finish_reason": reason,
    }
    if reason is not None:
        choice["stop_reason"] = None if answer.aborted else answer.stop_reason
    choice["token_ids"] = token_ids(answer.tokens[start:end]) if sampling.return_token_ids else None
    chunk: dict[str, Any] = {**head, "choices": [choice]}
    if sampling.continuous_usage:
        chunk["usage"] = Usage.running(len(answer.prompt), end)
    if reason is not None:
        answer.closed = True
        if not sampling.include_usage:
            chunk["system_fingerprint"] = worker.system_fingerprint
    return chunk


ROUTES = (Route("POST", "/v1/chat/completions", chat_completions, tasks=("generate",)),)
