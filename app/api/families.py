"""Error bodies and error events in the dialect of the endpoint: what its clients' SDKs can read.

An error event ends a stream whose head is already sent. It stands alone (a blank line before it when the stream was cut
inside an event), and no end mark follows: a stream that failed must not look complete.
"""

import re
from enum import Enum
from typing import Any

import orjson

from app.api.errors import SHAPES, Reason
from app.api.relay import EventStream
from app.api.worker_error import WorkerError


class Family(Enum):
    """Whose shapes an endpoint speaks."""

    OPENAI = "openai"
    RESPONSES = "responses"
    ANTHROPIC = "anthropic"


ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    403: "permission_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    413: "request_too_large",
    414: "invalid_request_error",
    429: "rate_limit_error",
    431: "request_too_large",
    500: "api_error",
    502: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def error_body(family: Family, reason: Reason, detail: str = "", param: str | None = None) -> bytes:
    """The JSON body of a refusal. `detail` is added to the message; it is text of ours, never of a prompt.

    param: the member of the body that is at fault, where the reason itself does not name one.
    """
    return orjson.dumps(_error(family, reason, detail, param))


def error_event(
    family: Family,
    reason: Reason,
    detail: str,
    *,
    first_event: bytes = b"",
    last_events: bytes = b"",
    said: WorkerError | None = None,
) -> bytes:
    """One server-sent event that says why the stream ends here.

    first_event, last_events: how the stream began and the last bytes that were sent of it; the Responses dialect
    repeats the response object of the former and goes on with the sequence numbers of the latter.
    said: the worker's own error that this one stands for; its message is in `detail`.
    """
    if family is Family.RESPONSES:
        event = _response_failed(reason, detail, first_event, last_events)
        return b"event: response.failed\ndata: " + orjson.dumps(event) + b"\n\n"
    body = orjson.dumps(_error(family, reason, detail, said=said))
    if family is Family.ANTHROPIC:
        return b"event: error\ndata: " + body + b"\n\n"
    return b"data: " + body + b"\n\n"


LAST_EVENTS = {
    Family.OPENAI: re.compile(rb"data: ?\[DONE\]"),
    Family.RESPONSES: re.compile(rb"event: ?response\.(?:completed|failed|incomplete)"),
    Family.ANTHROPIC: re.compile(rb"event: ?message_stop"),
}


def is_over(family: Family, stream: EventStream) -> bool:
    """Whether the stream has said that it is complete, whatever becomes of its connection."""
    last = re.split(rb"\r?\n\r?\n", stream.last_events.rstrip())[-1]
    return stream.is_between_events and LAST_EVENTS[family].match(last.lstrip()) is not None


def _error(
    family: Family, reason: Reason, detail: str, param: str | None = None, said: WorkerError | None = None
) -> dict[str, Any]:
    shape = SHAPES[reason]
    message = f"{shape.message} ({detail})" if detail else shape.message
    status = said.status if said is not None else shape.status
    if family is Family.ANTHROPIC:
        kind = ANTHROPIC_TYPES.get(status) or ("invalid_request_error" if status < 500 else "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}}
    kind = shape.type
    if said is not None:
        kind = said.type or ("invalid_request_error" if status < 500 else shape.type)
        param = said.param
    return {"error": {"message": message, "type": kind, "param": param or shape.param, "code": shape.code}}


def _response_failed(reason: Reason, detail: str, first_event: bytes, last_events: bytes) -> dict[str, Any]:
    response = _data_of(first_event).get("response")
    if not isinstance(response, dict):
        response = {"object": "response", "output": []}
    message = _error(Family.OPENAI, reason, detail)["error"]["message"]
    response |= {"status": "failed", "error": {"code": "server_error", "message": message}}
    number = -1
    for block in last_events.split(b"\n\n"):
        present = _data_of(block).get("sequence_number")
        if isinstance(present, int):
            number = present
    return {"type": "response.failed", "sequence_number": number + 1, "response": response}


def _data_of(event: bytes) -> dict[str, Any]:
    """The JSON object of an event's data line; {} when it is cut off or something else."""
    for line in event.splitlines():
        if line.startswith(b"data:"):
            try:
                data = orjson.loads(line[5:])
            except orjson.JSONDecodeError:
                return {}
            return data if isinstance(data, dict) else {}
    return {}
