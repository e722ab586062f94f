"""POST /v1/responses (OpenAI Responses): one message of output, nothing stored."""

import uuid
from typing import Any

from app.sim.worker.driver import Generation
from app.sim.worker.errors import ApiError
from app.sim.worker.fields import Fields
from app.sim.worker.http import Exchange, Route
from app.sim.worker.sampling import Answer, Sampling, check_sampling, plan, read_sampling, submit, take_new
from app.sim.worker.simulated import SimulatedWorker, created_s
from app.sim.worker.tokens import conversation, text_of
from app.sim.worker.turns import text_of_content

_STATUS = {"stop": "completed", "length": "incomplete", "abort": "cancelled"}


async def responses(exchange: Exchange, worker: SimulatedWorker) -> None:
    fields = await exchange.fields()
    if not fields.get("tools"):
        fields.body.setdefault("tool_choice", "none")
    if fields.require("input") and not isinstance(fields.get("input"), str | list):
        fields.complain_type("string", "string", "input", fields.get("input"))
        fields.complain_type("list", "list", "input", fields.get("input"))
    sampling = read_sampling(fields)
    sampling.max_tokens, sampling.max_tokens_name = fields.integer("max_output_tokens"), "max_output_tokens"
    instructions = fields.text("instructions")
    previous = fields.text("previous_response_id")
    fields.check()
    worker.check_model(sampling.model)
    if previous is not None:
        raise ApiError(
            404, f"Response with id '{previous}' not found.", param="response_id", kind="invalid_request_error"
        )
    check_sampling(sampling, worker)
    messages = _messages(fields.get("input"), worker)
    prompt = conversation([("system", instructions), *messages] if instructions else messages)
    (answer,) = plan(worker, sampling, prompt)
    generation = submit(worker, (answer,), streams=sampling.stream)
    head = _head(fields, worker, sampling, len(prompt))
    item_id = f"msg_{uuid.uuid4().hex[:16]}"
    async with exchange.watching(generation):
        if sampling.stream:
            await _Stream(exchange, head, item_id).run(worker, answer, generation)
            return
        await generation.end()
    await exchange.reply_json(_whole(head, item_id, answer, generation))


def _messages(value: object, worker: SimulatedWorker) -> list[tuple[str, str]]:
    """(role, text) of an input that is a text or a list of items; items that are not messages carry their output."""
    if isinstance(value, str):
        return [("user", value)]
    items = [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
    messages = [
        (str(item.get("role", "tool")), text_of_content(item.get("content", item.get("output")), worker))
        for item in items
    ]
    if not messages:
        raise ApiError(400, "Cannot apply chat template to an empty conversation. Provide at least one message.")
    return messages


def _head(fields: Fields, worker: SimulatedWorker, sampling: Sampling, prompt_tokens: int) -> dict[str, Any]:
    """The response object as it is when work begins."""
    tools = fields.items("tools")
    room = worker.settings.model_len - prompt_tokens
    return {
        "id": f"resp_{uuid.uuid4().hex[:16]}",
        "created_at": created_s(),
        "incomplete_details": None,
        "instructions": fields.get("instructions"),
        "metadata": fields.get("metadata"),
        "model": worker.model_name,
        "object": "response",
        "output": [],
        "parallel_tool_calls": fields.flag("parallel_tool_calls", default=True),
        "temperature": sampling.temperature,
        "tool_choice": fields.get("tool_choice") or ("auto" if tools else "none"),
        "tools": tools,
        "top_p": sampling.top_p,
        "background": fields.flag("background"),
        "max_output_tokens": room if sampling.max_tokens is None else sampling.max_tokens,
        "max_tool_calls": fields.get("max_tool_calls"),
        "previous_response_id": None,
        "prompt": fields.get("prompt"),
        "reasoning": fields.get("reasoning"),
        "service_tier": fields.get("service_tier") or "auto",
        "status": "in_progress",
        "text": fields.get("text"),
        "top_logprobs": fields.get("top_logprobs"),
        "truncation": fields.get("truncation") or "disabled",
        "usage": None,
        "user": fields.get("user"),
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "input_messages": None,
        "output_messages": None,
    }


def _whole(head: dict[str, Any], item_id: str, answer: Answer, generation: Generation) -> dict[str, Any]:
    """The response object as it is when work has ended."""
    generated = generation.generated(answer.request)
    reason = answer.finish_reason or "abort"
    usage = {
        "input_tokens": len(answer.prompt),
        "input_tokens_details": {
            "cached_tokens": answer.request.cached_tokens,
            "cache_write_tokens": 0,
            "input_tokens_per_turn": [],
            "cached_tokens_per_turn": [],
        },
        "output_tokens": generated,
        "output_tokens_details": {
            "reasoning_tokens": 0,
            "tool_output_tokens": 0,
            "output_tokens_per_turn": [],
            "tool_output_tokens_per_turn": [],
        },
        "total_tokens": len(answer.prompt) + generated,
    }
    return {
        **head,
        "incomplete_details": {"reason": "max_output_tokens"} if reason == "length" else None,
        "output": [_item(item_id, [_part(text_of(answer.tokens[:generated]))], "completed")],
        "status": _STATUS[reason],
        "usage": usage,
    }


def _part(text: str, logprobs: list[Any] | None = None) -> dict[str, Any]:
    return {"annotations": [], "text": text, "type": "output_text", "logprobs": logprobs}


def _item(item_id: str, content: list[Any], status: str) -> dict[str, Any]:
    return {
        "id": item_id,
        "content": content,
        "role": "assistant",
        "status": status,
        "type": "message",
        "phase": None,
    }


class _Stream:
    """The events of one streamed response; numbers them."""

    def __init__(self, exchange: Exchange, head: dict[str, Any], item_id: str) -> None:
        self._exchange = exchange
        self._head = head
        self._item_id = item_id
        self._number = 0

    async def run(self, worker: SimulatedWorker, answer: Answer, generation: Generation) -> None:
        item_id = self._item_id
        place = {"content_index": 0, "item_id": item_id, "output_index": 0}
        await self._exchange.open_stream()
        await self._send("response.created", {"response": self._head})
        await self._send("response.in_progress", {"response": self._head})
        opened = False
        while answer.finish_reason is None or not opened:
            await generation.progress()
            if not opened:
                opened = True
                item = _item(item_id, [], "in_progress")
                await self._send("response.output_item.added", {"item": item, "output_index": 0})
                await self._send("response.content_part.added", {**place, "part": _part("", [])})
            start, end = take_new(generation, answer)
            if end > start:
                delta = text_of(answer.tokens[start:end])
                await self._send("response.output_text.delta", {**place, "delta": delta, "logprobs": []})
        text = text_of(answer.tokens[: answer.sent])
        item = _item(item_id, [_part(text)], "completed")
        await self._send("response.output_text.done", {**place, "logprobs": [], "text": text})
        await self._send("response.content_part.done", {**place, "part": _part(text)})
        await self._send("response.output_item.done", {"item": item, "output_index": 0})
        await self._send("response.completed", {"response": _whole(self._head, item_id, answer, generation)})
        await self._exchange.close_stream()

    async def _send(self, kind: str, payload: dict[str, Any]) -> None:
        """Send one event; keys in alphabetical order, as vLLM's event classes declare them."""
        event = {**payload, "sequence_number": self._number, "type": kind}
        self._number += 1
        await self._exchange.event(dict(sorted(event.items())), name=kind)


ROUTES = (Route("POST", "/v1/responses", responses, tasks=("generate",)),)
