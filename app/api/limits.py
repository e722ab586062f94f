"""What a request may be before any application sees it, and the answer to one that is not."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from app.api.errors import SHAPES, EdgeReason
from app.api.families import Family, error_body
from app.core.fleet.exchange import Header

HOST = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=%:\[\]-]*")
"""RFC 9110 §7.2, a name or address and a port; what is none must be refused (RFC 9112 §3.2)."""


@dataclass(frozen=True, slots=True)
class EdgeLimits:
    """max_head_bytes: request line and headers. head_timeout_s: from a head's first byte to its last.
    body_pace: bytes that must arrive in each `body_window_s`. max_connections_per_client: 0 for no limit.
    write_stall_s: how long a client may take nothing while bytes wait for it. on_refused: told of every refusal made
    here."""

    max_head_bytes: int = 32 * 1024
    max_headers: int = 100
    max_target_bytes: int = 8 * 1024
    head_timeout_s: float = 10.0
    body_window_s: float = 10.0
    body_pace: int = 10 * 1024
    max_connections: int = 10_000
    max_connections_per_client: int = 0
    write_stall_s: float = 60.0
    on_refused: Callable[[EdgeReason], None] = lambda reason: None


DEFAULT_LIMITS = EdgeLimits()


def judge_head(url: bytes, headers: Sequence[Header], version: str, limits: EdgeLimits) -> EdgeReason | None:
    """Why a whole head is refused; None when it is not."""
    if len(url) > limits.max_target_bytes:
        return EdgeReason.TARGET_TOO_LONG
    if len(headers) > limits.max_headers:
        return EdgeReason.HEAD_TOO_LARGE
    size = hosts = credentials = 0
    is_plain = version in ("1.0", "1.1")
    for name, value in headers:
        size += len(name) + len(value)
        if name == b"host":
            hosts += 1
            is_plain &= HOST.fullmatch(value) is not None
        elif name == b"authorization":
            credentials += 1
        elif name == b"transfer-encoding":
            is_plain &= value.lower() == b"chunked"
    if size > limits.max_head_bytes:
        return EdgeReason.HEAD_TOO_LARGE
    if not is_plain or credentials > 1 or (hosts != 1 and (hosts > 1 or version != "1.0")):
        return EdgeReason.MALFORMED_HTTP
    return None


def has_body(headers: Sequence[Header]) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0")) for name, value in headers
    )


def refusal(reason: EdgeReason) -> bytes:
    """A whole HTTP answer, after which the connection ends."""
    shape = SHAPES[reason]
    body = error_body(Family.OPENAI, reason)
    retry = b"retry-after: %d\r\n" % shape.retry_after_s if shape.retry_after_s is not None else b""
    head = b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\n%scontent-length: %d\r\nconnection: close\r\n\r\n"
    return head % (shape.status, HTTPStatus(shape.status).phrase.encode(), retry, len(body)) + body
