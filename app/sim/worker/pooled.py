"""What the pooling endpoints share: the forms of their requests, and letting the engine read what is in them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from app.sim.worker.encoding import Encoding, read_encoding
from app.sim.worker.errors import ApiError, aborted, bad_value
from app.sim.worker.fields import Fields
from app.sim.worker.http import Exchange
from app.sim.worker.prompts import Given, Prompt, prompts_of, read_given
from app.sim.worker.simulated import SimulatedWorker, created_s
from app.sim.worker.tokens import conversation
from app.sim.worker.turns import turns_of

SIDES = ("left", "right")
JSON_NUMBERS = Encoding()
_REMOVED_TASKS = {
    "score": "`score` task was removed; use `classify` instead.",
    "encode": "`encode` task was removed; use `token_embed` or `token_classify` instead.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How much of a prompt may be read: None is all or nothing, -1 as much as the context holds."""

    tokens: int | None
    from_left: bool

    def of(self, prompt: Prompt, limit: int) -> Prompt:
        if self.tokens is None:
            return prompt
        return prompt.cut(limit if self.tokens < 0 else self.tokens, left=self.from_left)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolingRequest:
    """`given` or `messages`: what is to be read; neither where the client sent something for a plugin."""

    model: str | None
    cut: Cut
    given: Given | None = None
    messages: list[Any] | None = None
    activated: bool = True
    encoding: Encoding = JSON_NUMBERS
    dimensions: int | None = None
    task: str | None = None


Form = Callable[[Fields], PoolingRequest]


def forms(*, encoded: bool, tasks: tuple[str, ...] = ()) -> tuple[Form, ...]:
    """A request with `input`, or one with `messages`. `encoded`: the client chooses how numbers are written."""
    return tuple(partial(_read, source=source, encoded=encoded, tasks=tasks) for source in ("input", "messages"))


def read_cut(fields: Fields) -> Cut:
    tokens = fields.integer("truncate_prompt_tokens", least=-1)
    return Cut(tokens=tokens, from_left=fields.choice("truncation_side", SIDES) == "left")


def _read(fields: Fields, *, source: str, encoded: bool, tasks: tuple[str, ...]) -> PoolingRequest:
    activated = fields.flag("use_activation", default=True)
    encoding = read_encoding(fields) if encoded else JSON_NUMBERS
    dimensions = fields.integer("dimensions") if encoded else None
    there = fields.require(source)
    return PoolingRequest(
        given=read_given(fields, source) if there and source == "input" else None,
        messages=fields.items(source) if there and source == "messages" else None,
        activated=activated,
        encoding=encoding,
        dimensions=dimensions,
        model=fields.text("model"),
        cut=read_cut(fields),
        task=fields.choice("task", tasks) if tasks else None,
    )


def refuse_removed(body: Any) -> None:
    """400 for what earlier releases of vLLM had."""
    if not isinstance(body, dict):
        return
    if "normalize" in body:
        raise bad_value("Parameter `normalize` was removed; use `use_activation` instead.", "normalize")
    task = body.get("task")
    if isinstance(task, str) and task in _REMOVED_TASKS:
        raise bad_value(_REMOVED_TASKS[task], "task")


def prompts_to_read(request: PoolingRequest, worker: SimulatedWorker) -> list[Prompt]:
    """The prompts of a request, cut where the client allows it; 400 for what the model cannot read."""
    worker.check_model(request.model, pooling=True)
    limit = worker.settings.model_len
    check_cut(request.cut, limit)
    if request.given is not None:
        prompts = prompts_of(request.given)
    else:
        prompts = [Prompt(conversation(turns_of(request.messages or [], worker)))]
    if not prompts:
        raise ApiError(400, "You must pass at least one prompt")
    if any(prompt.counted and not prompt.tokens for prompt in prompts):
        raise ApiError(400, "The decoder prompt cannot be empty")
    prompts = [request.cut.of(prompt, limit) for prompt in prompts]
    for prompt in prompts:
        worker.check_length(len(prompt.tokens), counted=prompt.counted)
    return prompts


def check_cut(cut: Cut, limit: int) -> None:
    if cut.tokens is not None and cut.tokens > limit:
        message = (
            "truncate_prompt_tokens value is greater than max_model_len. Please request a smaller truncation size."
        )
        raise ApiError(400, message)


async def run_pooled(exchange: Exchange, worker: SimulatedWorker, token_counts: Iterable[int]) -> int:
    """Let the engine read prompts of so many tokens; the sum of them."""
    counts = list(token_counts)
    generation = worker.pool(counts)
    async with exchange.watching(generation):
        await generation.end()
    if any(request.finish_reason == "abort" for request in generation.requests):
        raise aborted()
    return sum(counts)


async def run_prompts(exchange: Exchange, worker: SimulatedWorker, prompts: Iterable[Prompt]) -> int:
    return await run_pooled(exchange, worker, (len(prompt.tokens) for prompt in prompts))


def head_of(prefix: str, exchange: Exchange, worker: SimulatedWorker) -> dict[str, Any]:
    return {
        "id": f"{prefix}-{exchange.new_id()}",
        "object": "list",
        "created": created_s(),
        "model": worker.model_name,
    }
