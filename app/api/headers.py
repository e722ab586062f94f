"""Which headers pass, in either direction."""

import re
from collections.abc import Callable, Sequence

from app.core.fleet.exchange import Header

REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
"""What a client's own request id may look like: vLLM puts it into every event, logs and traces carry it."""

NOT_FOR_WORKERS = frozenset(
    (
        # of one connection (RFC 9110 §7.6.1), or settled by the gateway
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
        b"trailer", b"transfer-encoding", b"upgrade", b"host", b"content-length", b"expect", b"accept-encoding",
        # the user's credentials and cookies are for us
        b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key", b"cookie", b"cookie2",
        # where the client came from is ours to say, and x-request-id is set anew
        b"forwarded", b"via", b"x-real-ip", b"x-request-id",
    )
)  # fmt: skip

NOT_FOR_CLIENTS = frozenset(
    (
        b"server", b"date", b"set-cookie", b"set-cookie2", b"x-request-id", b"alt-svc",
        # a worker does not say where a client goes next: SDKs follow, and would send it the prompt, and its own
        # address is nobody's business outside. A redirect thus arrives as a status and leads nowhere.
        b"location", b"content-location", b"refresh",
    )
)  # fmt: skip
"""Hop-by-hop headers are gone already. `date` and `server` are written by our own listener."""

OURS = b"x-warmset-"
"""Headers by which the gateway is told something or tells it: nobody else's word, in either direction."""

SIMULATED = b"x-warmset-simulated"
"""The one of them that a worker writes: who reads a made-up answer must be able to tell."""


def request_id(headers: Sequence[Header], make: Callable[[], str]) -> str:
    """The client's own `x-request-id` when it is sane, else a new one."""
    for name, value in headers:
        if name == b"x-request-id" and REQUEST_ID.fullmatch(value):
            return value.decode("ascii")
    return make()


def to_worker(headers: Sequence[Header], request_id: str) -> list[Header]:
    """The request headers that the worker gets."""
    passed: list[Header] = []
    named: tuple[bytes, ...] = ()
    for name, value in headers:
        if name == b"connection":
            named += tuple(token.strip().lower() for token in value.split(b","))
        elif name not in NOT_FOR_WORKERS and not name.startswith((b"x-forwarded-", OURS)):
            passed.append((name, value))
    if named:
        passed = [header for header in passed if header[0] not in named]
    # Set here and not before: a client cannot name it in `Connection`, and so have the worker make one up.
    return [(b"x-request-id", request_id.encode("ascii")), *passed]


def to_client(headers: Sequence[Header], request_id: str) -> list[Header]:
    """The response headers that the client gets."""
    passed = [(b"x-request-id", request_id.encode("ascii"))]
    for header in headers:
        name = header[0]
        if name not in NOT_FOR_CLIENTS and (not name.startswith(OURS) or name == SIMULATED):
            passed.append(header)
    return passed


def is_event_stream(headers: Sequence[Header]) -> bool:
    """Whether the body is events that can be read: compressed ones pass like any other bytes."""
    is_stream = False
    for name, value in headers:
        if name == b"content-encoding" and value.strip().lower() != b"identity":
            return False
        is_stream |= name == b"content-type" and value[:17].lower() == b"text/event-stream"
    return is_stream


def has_length(headers: Sequence[Header]) -> bool:
    return any(name == b"content-length" for name, _ in headers)
