"""POST /score and /rerank, under every path that vLLM has for them."""

from app.sim.worker.errors import ApiError
from app.sim.worker.http import Exchange, Route
from app.sim.worker.pooled import head_of, run_pooled, usage_of
from app.sim.worker.simulated import SimulatedWorker
from app.sim.worker.tokens import tokenize
from app.sim.worker.vectors import cosine, embed, relevance

# The names under which the two sides of the pairs may come.
PAIRS = (("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2"))
TASKS = ("embed", "score")


async def score(exchange: Exchange, worker: SimulatedWorker) -> None:
    fields = await exchange.fields()
    names = next((pair for pair in PAIRS if all(name in fields.body for name in pair)), None)
    if names is None:
        for pair in PAIRS:
            fields.require(*pair)
    model = fields.text("model")
    fields.check()
    worker.check_model(model, pooling=True)
    first, second = (_texts(fields.get(name)) for name in names or PAIRS[0])
    if len(first) == 1:
        first *= max(1, len(second))
    if not second:
        raise ApiError(400, "At least one text_pair element must be given")
    if len(first) != len(second):
        raise ApiError(400, "Input lengths must be either 1:1, 1:N or N:N")
    values, tokens = await _score_pairs(exchange, worker, list(zip(first, second, strict=True)))
    items = [{"index": index, "object": "score", "score": value} for index, value in enumerate(values)]
    await exchange.reply_json({**head_of("score", exchange, worker), "data": items, "usage": usage_of(tokens)})


async def rerank(exchange: Exchange, worker: SimulatedWorker) -> None:
    """Documents by falling relevance; `top_n` keeps the first ones."""
    fields = await exchange.fields()
    fields.require("query", "documents")
    model, top_n = fields.text("model"), fields.integer("top_n")
    fields.check()
    worker.check_model(model, pooling=True)
    (query, *_), documents = _texts(fields.get("query")) or [""], _texts(fields.get("documents"))
    if not documents:
        raise ApiError(400, "At least one text_pair element must be given")
    values, tokens = await _score_pairs(exchange, worker, [(query, document) for document in documents])
    results = [
        {
            "index": index,
            "document": {"text": documents[index], "multi_modal": None},
            "relevance_score": values[index],
        }
        for index in sorted(range(len(values)), key=lambda index: -values[index])
    ]
    body = {
        "id": f"score-{exchange.new_id()}",
        "model": worker.model_name,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        "results": results[:top_n] if top_n and top_n > 0 else results,
    }
    await exchange.reply_json(body)


def _texts(value: object) -> list[str]:
    """The texts of one side: a text, a list of texts, or objects that carry a `text`."""
    items = value if isinstance(value, list) else [value]
    return [str(item.get("text", "")) if isinstance(item, dict) else str(item) for item in items]


async def _score_pairs(
    exchange: Exchange, worker: SimulatedWorker, pairs: list[tuple[str, str]]
) -> tuple[list[float], int]:
    """One score per pair and the tokens read: cosine on an embedding model, relevance on a scoring one."""
    for pair in pairs:
        worker.check_length(sum(len(tokenize(text)) for text in pair), pooling=True)
    tokens = await run_pooled(exchange, worker, [" ".join(pair) for pair in pairs])
    dimension = worker.options.embedding_dim
    if worker.options.task == "embed":
        return [cosine(embed(first, dimension), embed(second, dimension)) for first, second in pairs], tokens
    return [relevance(first, second, dimension) for first, second in pairs], tokens


ROUTES = (
    *(Route("POST", path, score, tasks=TASKS) for path in ("/score", "/v1/score")),
    *(Route("POST", path, rerank, tasks=TASKS) for path in ("/rerank", "/v1/rerank", "/v2/rerank")),
)
