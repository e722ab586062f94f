"""The metrics listener's application: /metrics, /livez and /readyz. Pure ASGI, open, reads only."""

import logging
from collections.abc import Awaitable, Callable

import orjson

from app.api.errors import EdgeReason
from app.api.families import Family
from app.api.respond import Receive, Scope, Send, send_json, send_refusal

log = logging.getLogger("warmset.monitoring")

Exposition = Callable[[str], Awaitable[tuple[bytes, str]]]
"""An Accept header -> the metrics and their content type."""


class Monitoring:
    """`not_ready` says why this gateway should get no traffic, None when it should.

    /livez answers 200 while the event loop turns, and asks nobody: a restart mends neither a store nor a worker.
    """

    def __init__(self, exposition: Exposition, not_ready: Callable[[], str | None]) -> None:
        self._exposition = exposition
        self._not_ready = not_ready

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # uvicorn is told to offer neither lifespan nor websockets
        path: str = scope["path"]
        if path not in ("/metrics", "/livez", "/readyz"):
            served = "served are GET /metrics, /livez and /readyz"
            await send_refusal(send, Family.OPENAI, EdgeReason.UNKNOWN_PATH, served)
        elif scope["method"] not in ("GET", "HEAD"):
            await send_refusal(send, Family.OPENAI, EdgeReason.METHOD_NOT_ALLOWED, headers=[(b"allow", b"GET, HEAD")])
        elif path == "/metrics":
            await self._metrics(scope, send)
        elif path == "/livez":
            await send_json(send, 200, b'{"status":"live"}')
        else:
            await send_json(send, *readiness(self._not_ready()))

    async def _metrics(self, scope: Scope, send: Send) -> None:
        accept = b",".join(value for name, value in scope["headers"] if name == b"accept").decode("latin-1")
        try:
            body, content_type = await self._exposition(accept)
        except Exception:
            # A gauge that cannot be read must not end in an answer without a body.
            log.exception("metrics could not be collected")
            await send_refusal(send, Family.OPENAI, EdgeReason.INTERNAL)
            return
        head = [(b"content-type", content_type.encode("latin-1")), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": body, "more_body": False})


def readiness(problem: str | None) -> tuple[int, bytes]:
    """Status and JSON body of a readiness answer."""
    if problem is None:
        return 200, b'{"status":"ready"}'
    return 503, orjson.dumps({"status": "not ready", "because": problem})
