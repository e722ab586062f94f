"""POST /generative_scoring: how likely the first of some tokens follows each of several items."""

import math

from app.sim.engine import EngineRequest
from app.sim.worker.errors import ApiError, aborted
from app.sim.worker.fields import Complaint, Fields
from app.sim.worker.http import Exchange, Route
from app.sim.worker.prompts import Given, prompts_of
from app.sim.worker.simulated import SimulatedWorker, created_s
from app.sim.worker.text import answer_key, logprob
from app.sim.worker.tokens import VOCABULARY, piece_of
from app.sim.worker.usage import pooled_usage
from app.sim.worker.vectors import softmax


async def generative_scoring(exchange: Exchange, worker: SimulatedWorker) -> None:
    fields = await exchange.fields()
    model = fields.text("model")
    query, items = _query(fields), _items(fields)
    labels = fields.integers("label_token_ids") if fields.require("label_token_ids") else []
    normalised, item_first = fields.flag("apply_softmax", default=True), fields.flag("item_first")
    salt = fields.text("cache_salt")
    fields.check()
    worker.check_model(model)
    _check(labels, items)
    before = [token for prompt in prompts_of(query) for token in prompt.tokens]
    most = worker.settings.model_len - 1
    prompts = []
    for item in prompts_of(items):
        joined = [*item.tokens, *before] if item_first else [*before, *item.tokens]
        prompts.append(joined[:most])
    if not all(prompts):
        raise ApiError(400, "The decoder prompt cannot be empty")
    requests = [EngineRequest(len(prompt), 1, worker.block_hashes(prompt, salt)) for prompt in prompts]
    generation = worker.driver.submit(requests, streams=False)
    worker.observations.asked(1, 1)
    async with exchange.watching(generation):
        await generation.end()
    if any(request.finish_reason == "abort" for request in requests):
        raise aborted()
    data = []
    for index, prompt in enumerate(prompts):
        key = answer_key(prompt, worker.options.seed)
        values = [logprob(key, 0, piece_of(label), rank) for rank, label in enumerate(labels, start=1)]
        shares = softmax(values) if normalised else [math.exp(value) for value in values]
        data.append({"index": index, "object": "score", "score": shares[0]})
    read, said = sum(map(len, prompts)), len(prompts)
    body = {
        "id": f"generative-scoring-{exchange.new_id()}",
        "object": "list",
        "created": created_s(),
        "model": worker.model_name,
        "data": data,
        "usage": {**pooled_usage(read), "total_tokens": read + said, "completion_tokens": said},
    }
    await exchange.reply_json(body)


def _check(labels: list[int], items: Given) -> None:
    for label in labels:
        if not 0 <= label < VOCABULARY:
            message = (
                f"label_token_id {label} is out of vocabulary range [0, {VOCABULARY}). Please provide valid token IDs."
            )
            raise ApiError(400, message)
    if not labels:
        raise ApiError(400, "label_token_ids must contain at least one token ID.")
    if not items:
        raise ApiError(400, "items must contain at least one item.")


def _query(fields: Fields) -> Given:
    """A text or token ids."""
    value = fields.get("query")
    if not fields.require("query") or isinstance(value, str):
        return value or ""
    trial = Fields(fields.body)
    ids = trial.integers("query") if isinstance(value, list) else []
    if not isinstance(value, list):
        trial.complain_type("list", "list", "query", value)
    if trial.complaints:
        fields.complain_type("string", "string", "query", value)
        fields.complaints += trial.complaints
    return ids


def _items(fields: Fields) -> Given:
    """Texts or lists of token ids."""
    if not fields.require("items"):
        return []
    value = fields.items("items")
    texts, lists = Fields(fields.body), Fields(fields.body)
    ids: list[list[int]] = []
    for at, item in enumerate(value):
        if not isinstance(item, str):
            texts.complain_type("string", "string", f"items.{at}", item)
        if isinstance(item, list):
            numbers = [lists.as_integer(f"items.{at}.{place}", number) for place, number in enumerate(item)]
            ids.append([number for number in numbers if number is not None])
        else:
            lists.complain_type("list", "list", f"items.{at}", item)
    if texts.complaints and lists.complaints:
        complaints: list[Complaint] = [*texts.complaints, *lists.complaints]
        fields.complaints += complaints
    return ids if texts.complaints else value


ROUTES = (Route("POST", "/generative_scoring", generative_scoring, tasks=("generate",)),)
