"""The messages of a conversation as (role, text) turns, as a chat template would see them."""

from collections.abc import Sequence
from typing import Any

import orjson

from app.sim.worker.errors import ApiError
from app.sim.worker.simulated import SimulatedWorker


def turns_of(messages: Sequence[Any], worker: SimulatedWorker, tools: object = None) -> list[tuple[str, str]]:
    """The turns, with the tools in front; 400 when there are none, or one holds more than text."""
    turns = [
        (str(message.get("role", "")), text_of_content(message.get("content"), worker))
        for message in messages
        if isinstance(message, dict)
    ]
    if not turns:
        raise ApiError(400, "Cannot apply chat template to an empty conversation. Provide at least one message.")
    return [("tools", orjson.dumps(tools).decode()), *turns] if tools else turns


def text_of_content(content: object, worker: SimulatedWorker) -> str:
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, dict)]
        if any(part.get("type") not in ("text", "input_text", "output_text", "refusal", None) for part in parts):
            raise ApiError(400, f"{worker.model_name} is not a multimodal model")
        return "\n".join(str(part.get("text", "")) for part in parts)
    return content if isinstance(content, str) else ""
