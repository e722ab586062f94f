"""Reads bodies of requests, and counts what is held of them: one by one, and all of this process together.

Answers that are put together of parts are counted with them; others are never held.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app.api.errors import EdgeReason
from app.api.facts import Rejected
from app.api.options import ProxyOptions
from app.api.respond import Receive
from app.core.fleet.exchange import Header
from app.core.tenants.admission import Ticket
from app.core.tenants.meter import Over


@dataclass(slots=True)
class HeldBodies:
    """Bytes of request bodies that this process holds: of those still arriving, and until a worker begins to answer."""

    size: int = 0


class Overfull(Exception):
    """More bytes of answers than this process may hold."""


class Intake:
    """The body of one request. `let_go` ends the counting of what it read."""

    __slots__ = ("_all", "_options", "_size")

    def __init__(self, held: HeldBodies, options: ProxyOptions) -> None:
        self._all = held
        self._options = options
        self._size = 0

    async def read(self, headers: Sequence[Header], receive: Receive, ticket: Ticket) -> bytes | Rejected | Over | None:
        """The whole body, counted as it comes, for the tenant too; None when the client left before its end."""
        limit = self._options.max_body_bytes
        too_large = Rejected(EdgeReason.BODY_TOO_LARGE, f"at most {limit} bytes")
        for name, value in headers:
            if name == b"content-length" and int(value) > limit:
                return too_large
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            piece: bytes = message["body"]
            size += len(piece)
            if size > limit:
                return too_large
            refused = self.hold(len(piece), ticket)
            if refused is not None:
                return refused
            pieces.append(piece)
            if not message["more_body"]:
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def hold(self, size: int, ticket: Ticket) -> Rejected | Over | None:
        """Count so many bytes more; why they may not be held, or None."""
        over = ticket.hold(size)
        if over is not None:
            return over
        if not self._count(size):
            return Rejected(EdgeReason.OVERLOADED, "too many bytes of requests are waiting")
        return None

    def hold_answer(self, size: int) -> None:
        """Count so many bytes of an answer. Raises Overfull."""
        if not self._count(size):
            raise Overfull

    def _count(self, size: int) -> bool:
        self._size += size
        self._all.size += size
        return self._all.size <= self._options.max_held_bytes

    def let_go(self) -> None:
        """The body is not held any more; again and again does no harm."""
        self._all.size -= self._size
        self._size = 0
