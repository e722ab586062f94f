"""POST /v1/completions: prompts as text or token ids, one or many."""

from collections.abc import Sequence
from typing import Any

from app.sim.worker.driver import Generation
from app.sim.worker.errors import ApiError, bad_value
from app.sim.worker.fields import Fields
from app.sim.worker.http import Exchange, Route
from app.sim.worker.logprobs import completion_logprobs, prompt_logprobs
from app.sim.worker.prompts import Given, prompts_of, read_given
from app.sim.worker.sampling import Answer, Sampling, check_sampling, plan, read_sampling, submit, take_new
from app.sim.worker.simulated import SimulatedWorker, created_s
from app.sim.worker.tokens import text_of, token_ids
from app.sim.worker.usage import Usage

DEFAULT_MAX_TOKENS = 16


async def completions(exchange: Exchange, worker: SimulatedWorker) -> None:
    fields = await exchange.fields()
    given = _read_prompt(fields)
    sampling = _read(fields)
    echo = fields.flag("echo")
    prompt_logprobs_wanted = fields.integer("prompt_logprobs")
    fields.check()
    worker.check_model(sampling.model)
    check_sampling(sampling, worker)
    prompts = prompts_of(given or [])
    if not prompts:
        raise ApiError(400, "You must pass at least one prompt")
    answers: list[Answer] = []
    for prompt in prompts:
        answers += plan(worker, sampling, prompt.tokens, first_index=len(answers), counted=prompt.counted)
    generation = submit(worker, answers, streams=sampling.stream)
    head = {
        "id": f"cmpl-{exchange.new_id()}",
        "object": "text_completion",
        "created": created_s(),
        "model": worker.model_name,
    }
    async with exchange.watching(generation):
        if sampling.stream:
            await _stream(exchange, worker, sampling, answers, generation, head, echo=echo)
            return
        await generation.end()
    choices = [_choice(worker, sampling, answer, generation, prompt_logprobs_wanted, echo=echo) for answer in answers]
    body = {
        **head,
        "choices": choices,
        "service_tier": None,
        "system_fingerprint": worker.system_fingerprint,
        "usage": Usage(worker, generation, answers, sampling.n).whole(created=False),
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": None,
    }
    await exchange.reply_json(body)


def _read_prompt(fields: Fields) -> Given | None:
    """None after a complaint."""
    if fields.get("prompt") in (None, ""):
        raise bad_value("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
    return read_given(fields, "prompt", least=0)


def _read(fields: Fields) -> Sampling:
    sampling = read_sampling(fields)
    wanted = fields.integer("max_tokens")
    sampling.max_tokens = DEFAULT_MAX_TOKENS if wanted is None else wanted
    sampling.top_logprobs = fields.integer("logprobs")
    fields.check()
    if fields.get("stream_options") is not None and not sampling.stream:
        raise bad_value("Stream options can only be defined when `stream=True`.", "stream_options")
    if sampling.top_logprobs is not None and sampling.top_logprobs < -1:
        raise bad_value("`logprobs` must be a positive value or -1.", "logprobs", sampling.top_logprobs)
    if sampling.logprob_token_ids and sampling.top_logprobs is None:
        raise bad_value("when using `logprob_token_ids`, `logprobs` must be set.", "logprob_token_ids")
    return sampling


def _choice(
    worker: SimulatedWorker,
    sampling: Sampling,
    answer: Answer,
    generation: Generation,
    prompt_logprobs_wanted: int | None,
    *,
    echo: bool,
) -> dict[str, Any]:
    _, end = take_new(generation, answer)
    before = _echoed(sampling, answer) if echo else ""
    scored = None
    if prompt_logprobs_wanted is not None:
        scored = prompt_logprobs(worker, answer.prompt, answer.key, prompt_logprobs_wanted)
    return {
        "index": answer.index,
        "text": before + text_of(answer.tokens[:end]),
        "logprobs": completion_logprobs(worker, sampling, answer, 0, end, len(before)),
        "finish_reason": answer.finish_reason,
        "stop_reason": None if answer.aborted else answer.stop_reason,
        "token_ids": token_ids(answer.tokens[:end]) if sampling.return_token_ids else None,
        "prompt_logprobs": scored,
        "prompt_token_ids": token_ids(answer.prompt) if sampling.return_token_ids else None,
        "routed_experts": None,
    }


def _echoed(sampling: Sampling, answer: Answer) -> str:
    """The prompt as text; nothing where its ids are shown."""
    return "" if sampling.return_token_ids else text_of(answer.prompt)


async def _stream(
    exchange: Exchange,
    worker: SimulatedWorker,
    sampling: Sampling,
    answers: Sequence[Answer],
    generation: Generation,
    head: dict[str, Any],
    *,
    echo: bool,
) -> None:
    await exchange.open_stream()
    while any(not answer.closed for answer in answers):
        await generation.progress()
        for answer in answers:
            if not answer.closed:
                chunk = _chunk(worker, sampling, answer, generation, head, echo=echo)
                if chunk is not None:
                    await exchange.event(chunk)
    if sampling.include_usage:
        usage = Usage(worker, generation, answers, sampling.n).final(created=False)
        await exchange.event({**head, "choices": [], "usage": usage, "system_fingerprint": worker.system_fingerprint})
    await exchange.close_stream(b"data: [DONE]\n\n")


def _chunk(
    worker: SimulatedWorker,
    sampling: Sampling,
    answer: Answer,
    generation: Generation,
    head: dict[str, Any],
    *,
    echo: bool,
) -> dict[str, Any] | None:
    """The chunk of what is new in `answer`, None when nothing is; its first one repeats the prompt if asked to."""
    start, end = take_new(generation, answer)
    reason = answer.finish_reason
    if start == end and reason is None:
        return None
    before = _echoed(sampling, answer) if echo and start == 0 else ""
    offset = len(text_of(answer.tokens[:start])) + len(before)
    with_ids = sampling.return_token_ids
    choice = {
        "index": answer.index,
        "text": before + text_of(answer.tokens[start:end]),
        "logprobs": completion_logprobs(worker, sampling, answer, start, end, offset),
        "finish_reason": reason,
        "stop_reason": None if reason is None or answer.aborted else answer.stop_reason,
        "prompt_token_ids": token_ids(answer.prompt) if (with_ids or echo) and start == 0 else None,
        "token_ids": token_ids(answer.tokens[start:end]) if with_ids else None,
    }
    chunk: dict[str, Any] = {**head, "choices": [choice]}
    if sampling.continuous_usage:
        chunk["usage"] = Usage.running(len(answer.prompt), end)
    if reason is not None:
        answer.closed = True
        if not sampling.include_usage:
            chunk["system_fingerprint"] = worker.system_fingerprint
    return chunk


ROUTES = (Route("POST", "/v1/completions", completions, tasks=("generate",)),)
