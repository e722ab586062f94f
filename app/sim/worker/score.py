"""POST /score and /rerank, under every path that vLLM has for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from app.sim.worker.errors import ApiError
from app.sim.worker.fields import Complaint, Fields, choose
from app.sim.worker.http import Exchange, Route
from app.sim.worker.pooled import Cut, check_cut, head_of, read_cut, run_prompts
from app.sim.worker.prompts import Prompt
from app.sim.worker.simulated import SimulatedWorker
from app.sim.worker.tokens import tokenize
from app.sim.worker.usage import pooled_usage
from app.sim.worker.vectors import cosine, embed, relevance

# The names under which the two sides of the pairs may come, in the order in which vLLM tries them.
PAIRS = (("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2"))
TASKS = ("embed", "score")

Item = str | dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """Both sides of the pairs; `most`: tokens that are read of one text of each side (0: all)."""

    model: str | None
    cut: Cut
    activated: bool
    most: tuple[int, int]
    first: list[Item]
    second: list[Item]


async def score(exchange: Exchange, worker: SimulatedWorker) -> None:
    request = choose(await exchange.json(), [partial(_read, names=names) for names in PAIRS])
    values, tokens = await _score(exchange, worker, request)
    items = [{"index": index, "object": "score", "score": value} for index, value in enumerate(values)]
    await exchange.reply_json({**head_of("score", exchange, worker), "data": items, "usage": pooled_usage(tokens)})


async def rerank(exchange: Exchange, worker: SimulatedWorker) -> None:
    """Documents by falling relevance; `top_n` keeps the first ones."""
    fields = await exchange.fields()
    request = _read(fields, names=("query", "documents"))
    top_n = fields.integer("top_n", least=0)
    fields.check()
    values, tokens = await _score(exchange, worker, request)
    results = [
        {
            "index": index,
            "document": {"text": request.second[index], "multi_modal": None},
            "relevance_score": values[index],
        }
        for index in sorted(range(len(values)), key=lambda index: -values[index])
    ]
    body = {
        "id": f"score-{exchange.new_id()}",
        "model": worker.model_name,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        "results": results[: top_n or None],
    }
    await exchange.reply_json(body)


def _read(fields: Fields, *, names: tuple[str, str]) -> Scoring:
    activated = fields.flag("use_activation", default=True)
    model, cut = fields.text("model"), read_cut(fields)
    most = (fields.integer("max_tokens_per_query") or 0, fields.integer("max_tokens_per_doc") or 0)
    first, second = (_side(fields, name) for name in names)
    return Scoring(model=model, cut=cut, activated=activated, most=most, first=first, second=second)


def _side(fields: Fields, name: str) -> list[Item]:
    """A text or a list of texts (`query` takes one only), or objects with the `content` of a message."""
    if not fields.require(name):
        return []
    value = fields.get(name)
    complaints = _item_complaints(fields, name, value)
    if not complaints:
        return [value]
    if name != "query" and isinstance(value, list):
        inner = [found for at, item in enumerate(value) for found in _item_complaints(fields, f"{name}.{at}", item)]
        if not inner:
            return value
        complaints += inner
    elif name != "query":
        trial = Fields(fields.body)
        trial.complain_type("list", "list", name, value)
        complaints += trial.complaints
    fields.complaints += complaints
    return []


def _item_complaints(fields: Fields, place: str, value: object) -> list[Complaint]:
    """Of both forms that an item may have; none when it fits one."""
    trial = Fields(fields.body)
    if isinstance(value, str) or (isinstance(value, dict) and "content" in value):
        return []
    trial.complain_type("string", "string", place, value)
    if isinstance(value, dict):
        trial.complain("missing", f"{place}.ScoreMultiModalParam.content", "Field required", value)
    else:
        trial.complain("dict_type", f"{place}.ScoreMultiModalParam", "Input should be a valid dictionary", value)
    return trial.complaints


async def _score(exchange: Exchange, worker: SimulatedWorker, request: Scoring) -> tuple[list[float], int]:
    """One score per pair and the tokens read: cosine on an embedding model, relevance on a scoring one."""
    worker.check_model(request.model, pooling=True)
    limit, dimension = worker.settings.model_len, worker.options.embedding_dim
    check_cut(request.cut, limit)
    queries, documents = _sides(request, limit)
    pairs = list(zip(queries * len(documents) if len(queries) == 1 else queries, documents, strict=True))
    if worker.options.task == "embed":
        prompts = [*queries, *documents]
        scores = [cosine(embed(query.text, dimension), embed(document.text, dimension)) for query, document in pairs]
    else:
        prompts = [Prompt([*query.tokens, *document.tokens]) for query, document in pairs]
        scores = [
            relevance(query.text, document.text, dimension, activated=request.activated) for query, document in pairs
        ]
    prompts = [request.cut.of(prompt, limit) for prompt in prompts]
    for prompt in prompts:
        worker.check_length(len(prompt.tokens))
    return scores, await run_prompts(exchange, worker, prompts)


def _sides(request: Scoring, limit: int) -> tuple[list[Prompt], list[Prompt]]:
    """One query or as many as documents; 400 for other numbers of them."""
    queries, documents = (
        [_prompt(text, most) for text in _texts(items)]
        for items, most in zip((request.first, request.second), _checked(request.most, limit), strict=True)
    )
    if len(queries) > 1 and len(queries) != len(documents):
        raise ApiError(400, "Input lengths must be either 1:1, 1:N or N:N")
    if not queries:
        raise ApiError(400, "At least one text element must be given")
    if not documents:
        raise ApiError(400, "At least one text_pair element must be given")
    return queries, documents


def _prompt(text: str, most: int) -> Prompt:
    prompt = Prompt(tokenize(text))
    return prompt.cut(most) if most else prompt


def _texts(items: Sequence[Item]) -> list[str]:
    texts = [item for item in items if isinstance(item, str)]
    if len(texts) < len(items):
        raise ApiError(400, "MultiModalParam is not supported for the simulated model")
    return texts


def _checked(most: tuple[int, int], limit: int) -> tuple[int, int]:
    for value, name in zip(most, ("max_tokens_per_query", "max_tokens_per_doc"), strict=True):
        if value < 0:
            raise ApiError(400, f"{name} must be a non-negative integer")
        if value >= limit:
            raise ApiError(400, f"{name} ({value}) must be less than max_model_len ({limit}).")
    return most


ROUTES = (
    *(Route("POST", path, score, tasks=TASKS) for path in ("/score", "/v1/score")),
    *(Route("POST", path, rerank, tasks=TASKS) for path in ("/rerank", "/v1/rerank", "/v2/rerank")),
)
