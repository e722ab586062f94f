"""Answers that the gateway gives itself."""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from app.api.errors import SHAPES, Reason
from app.api.families import Family, error_body
from app.core.fleet.exchange import Header

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


async def send_json(send: Send, status: int, body: bytes, headers: Sequence[Header] = ()) -> None:
    head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def send_refusal(
    send: Send,
    family: Family,
    reason: Reason,
    detail: str = "",
    headers: Sequence[Header] = (),
    param: str | None = None,
) -> int:
    """Answer with the shape of `reason`; returns the status."""
    shape = SHAPES[reason]
    extra = list(headers)
    if shape.retry_after_s is not None:
        extra.append((b"retry-after", b"%d" % shape.retry_after_s))
    if shape.is_final:
        extra.append((b"x-should-retry", b"false"))  # what the SDKs of OpenAI and Anthropic go by
    if shape.status == 401:
        extra.append((b"www-authenticate", b"Bearer"))
    await send_json(send, shape.status, error_body(family, reason, detail, param), extra)
    return shape.status


def without_the_body(scope: Scope, send: Send) -> Send:
    """A `send` for answers to requests whose body nobody reads: the connection ends with them, and takes no more."""
    connection = scope["extensions"]["warmset"]["connection"]

    async def send_and_linger(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (b"connection", b"close")]
        elif not message.get("more_body"):
            connection.linger_after_response()
        await send(message)

    return send_and_linger
