"""POST /v1/chat/completions."""

from collections.abc import Iterator, Sequence
from typing import Any

from app.sim.worker.driver import Generation
from app.sim.worker.errors import bad_value
from app.sim.worker.fields import Fields
from app.sim.worker.http import Exchange, Route
from app.sim.worker.logprobs import chat_logprobs
from app.sim.worker.sampling import Answer, Sampling, check_sampling, plan, read_sampling, submit, take_new
from app.sim.worker.simulated import SimulatedWorker, created_s
from app.sim.worker.tokens import conversation, text_of, token_ids
from app.sim.worker.turns import turns_of
from app.sim.worker.usage import Usage


async def chat_completions(exchange: Exchange, worker: SimulatedWorker) -> None:
    fields = await exchange.fields()
    fields.require("messages")
    messages = fields.items("messages")
    sampling = read_chat_sampling(fields)
    worker.check_model(sampling.model)
    check_sampling(sampling, worker)
    prompt = conversation(turns_of(messages, worker, fields.get("tools")))
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
    usage = Usage(worker, generation, answers, sampling.n).whole(created=True)
    shown = token_ids(prompt) if sampling.return_token_ids else None
    await exchange.reply_json(whole_chat(worker, sampling, answers, generation, head, usage, shown))


def whole_chat(
    worker: SimulatedWorker,
    sampling: Sampling,
    answers: Sequence[Answer],
    generation: Generation,
    head: dict[str, Any],
    usage: dict[str, Any],
    prompt_token_ids: list[int] | None,
) -> dict[str, Any]:
    """An answer in one piece, one choice for each of `answers`."""
    return {
        **head,
        "choices": [_choice(worker, sampling, answer, generation) for answer in answers],
        "service_tier": None,
        "system_fingerprint": worker.system_fingerprint,
        "usage": usage,
        "prompt_logprobs": None,
        "prompt_token_ids": prompt_token_ids,
        "prompt_text": None,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": None,
    }


def read_chat_sampling(fields: Fields) -> Sampling:
    """The parameters of a chat request, checked as far as they can be without the worker."""
    sampling = read_sampling(fields)
    older = fields.integer("max_tokens")
    newer = fields.integer("max_completion_tokens")
    sampling.max_tokens = older if newer is None else newer
    sampling.max_tokens_name = "max_tokens" if newer is None else "max_completion_tokens"
    top = fields.integer("top_logprobs")
    wanted = fields.flag("logprobs")
    fields.check()
    if fields.get("stream_options") is not None and not sampling.stream:
        raise bad_value("Stream options can only be defined when `stream=True`.", "stream_options")
    if top is not None and top < -1:
        raise bad_value("`top_logprobs` must be a positive value or -1.", "top_logprobs", top)
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
            chunk["usage"] = {**Usage.running(len(prompt), 0), "completion_tokens_details": None}
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
        chunk["usage"] = {**Usage.running(len(answer.prompt), end), "completion_tokens_details": None}
    if reason is not None:
        answer.closed = True
        if not sampling.include_usage:
            chunk["system_fingerprint"] = worker.system_fingerprint
    return chunk


ROUTES = (Route("POST", "/v1/chat/completions", chat_completions, tasks=("generate",)),)
