"""The answer that one client gets: begun once, ended once.

It is HTTP and nothing else: what stands in the answer is for others to say. A `send` that is cancelled while it waits
for a slow client has sent nothing (uvicorn waits before it writes and never after), so `is_started` is true exactly
when the client was sent a head.
"""

from collections.abc import Sequence
from typing import Any

from app.api.headers import has_length
from app.api.respond import Message, Scope, Send
from app.core.fleet.exchange import Header


class Reply:
    """One answer over the connection of `scope`. is_open_ended: it promised no length, so anything may follow."""

    __slots__ = ("_connection", "_is_http_1_0", "_is_until_close", "_send", "is_open_ended", "is_started")

    def __init__(self, scope: Scope, send: Send) -> None:
        self._connection: Any = scope["extensions"]["warmset"]["connection"]
        self._is_http_1_0 = scope["http_version"] == "1.0"
        self._is_until_close = False
        self._send = send
        self.is_started = False
        self.is_open_ended = False

    async def begin(self, status: int, headers: Sequence[Header]) -> None:
        self.is_open_ended = not has_length(headers)
        # HTTP/1.0 knows no chunks: without a length, the end of the connection is the end of the body.
        if self._is_http_1_0 and self.is_open_ended:
            self._is_until_close = True
            self._connection.begin_until_close()
        await self.send({"type": "http.response.start", "status": status, "headers": headers})

    async def send(self, message: Message) -> None:
        """For answers that are whole from the start."""
        await self._send(message)
        self.is_started = True

    async def pass_on(self, piece: bytes, *, is_last: bool = False) -> None:
        more = not is_last or self._is_until_close
        await self._send({"type": "http.response.body", "body": piece, "more_body": more})
        if is_last and self._is_until_close:
            self._connection.end_by_close()

    async def end_with(self, event: bytes) -> None:
        """The last that is said, in an answer that is not whole: the connection closes behind it."""
        self._connection.close_after_response()
        await self.pass_on(event, is_last=True)

    def abort(self) -> None:
        """The length was a promise that cannot be kept: close the connection now."""
        self._connection.abort()
