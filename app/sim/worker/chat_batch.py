"""POST /v1/chat/completions/batch: several conversations in one request, one choice for each; never a stream."""

from typing import Any

from app.sim.worker.chat import read_chat_sampling, whole_chat
from app.sim.worker.errors import bad_value
from app.sim.worker.fields import Fields
from app.sim.worker.http import Exchange, Route
from app.sim.worker.sampling import Answer, check_sampling, plan, submit
from app.sim.worker.simulated import SimulatedWorker, created_s
from app.sim.worker.tokens import conversation
from app.sim.worker.turns import turns_of
from app.sim.worker.usage import Usage


async def chat_batch(exchange: Exchange, worker: SimulatedWorker) -> None:
    fields = await exchange.fields()
    n = fields.get("n")
    if isinstance(n, int) and n > 1:
        raise bad_value("Batch chat completions do not support `n > 1`. Please set `n` to 1.", "n", n)
    conversations = _conversations(fields)
    # A wish for a stream is not a field of this request, and so ignored.
    sampling = read_chat_sampling(Fields({**fields.body, "stream": False, "stream_options": None}))
    fields.check()
    worker.check_model(sampling.model)
    check_sampling(sampling, worker)
    answers: list[Answer] = []
    for messages in conversations:
        answers += plan(worker, sampling, conversation(turns_of(messages, worker)), first_index=len(answers))
    generation = submit(worker, answers, streams=False)
    head = {
        "id": f"chatcmpl-{exchange.new_id()}",
        "object": "chat.completion",
        "created": created_s(),
        "model": worker.model_name,
    }
    async with exchange.watching(generation):
        await generation.end()
    usage = {
        **Usage(worker, generation, answers, sampling.n).counts,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }
    await exchange.reply_json(whole_chat(worker, sampling, answers, generation, head, usage, None))


def _conversations(fields: Fields) -> list[list[Any]]:
    """At least one, of at least one message each."""
    if not fields.require("messages"):
        return []
    found = fields.items("messages")
    for at, messages in enumerate(found):
        if not isinstance(messages, list):
            fields.complain_type("list", "list", f"messages.{at}", messages)
        elif not messages:
            _complain_short(fields, f"messages.{at}", messages)
    if isinstance(fields.get("messages"), list) and not found:
        _complain_short(fields, "messages", found)
    return [messages for messages in found if isinstance(messages, list)]


def _complain_short(fields: Fields, place: str, value: list[Any]) -> None:
    message = "List should have at least 1 item after validation, not 0"
    fields.complain("too_short", place, message, value, field_type="List", min_length=1, actual_length=0)


ROUTES = (Route("POST", "/v1/chat/completions/batch", chat_batch, tasks=("generate",)),)
