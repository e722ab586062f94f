"""What a worker's own error says, read where its status cannot be passed on as it is."""

from typing import NamedTuple

import orjson

from app.core.fleet.exchange import StreamBroken
from app.runtime.ports import Answer

BODY_MAX = 64 * 1024
"""Bytes of an error that are read; of a longer one only the status is told."""

MESSAGE_MAX = 4096
"""Characters of its message: validation errors repeat what was sent."""


class WorkerError(NamedTuple):
    """`type` and `param` as the worker gave them. The message may repeat the prompt: it is for the client, not for
    logs."""

    status: int
    message: str = ""
    type: str | None = None
    param: str | None = None

    @property
    def text(self) -> str:
        return f"status {self.status}: {self.message}" if self.message else f"status {self.status}"


async def read_worker_error(answer: Answer) -> WorkerError:
    body = b""
    try:
        while not answer.is_complete and len(body) <= BODY_MAX:
            body += await answer.read()
    except StreamBroken:
        pass  # the status is known all the same
    return worker_error(answer.status, body)


def worker_error(status: int, body: bytes) -> WorkerError:
    """From `{"error": {"message": ...}}`, as OpenAI's and Anthropic's dialects have it, or `{"message": ...}`,
    `{"error": "..."}`, `{"detail": "..."}`."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return WorkerError(status)
    if not isinstance(document, dict):
        return WorkerError(status)
    error = document.get("error")
    said = error if isinstance(error, dict) else document
    message = next((said[name] for name in ("message", "error", "detail") if isinstance(said.get(name), str)), "")
    return WorkerError(status, message[:MESSAGE_MAX], _text(said.get("type")), _text(said.get("param")))


def _text(value: object) -> str | None:
    return value[:MESSAGE_MAX] if isinstance(value, str) and value else None
