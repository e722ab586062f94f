"""A form with a file on its way from a client to a worker.

What comes before the worker is known is held: with `model` before the file that is next to nothing, behind it that is
the file. From then on the form passes piece by piece, and no more is read of the client than the worker takes.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from app.api.body import InvalidBody
from app.api.endpoints import SERVICES
from app.api.errors import EdgeReason
from app.api.facts import Rejected, read_manners, routing_key
from app.api.forms import FormReader, boundary_of
from app.api.intake import Intake
from app.api.options import ProxyOptions
from app.api.respond import Receive
from app.core.fleet.exchange import Header
from app.core.fleet.request import RequestFacts
from app.core.tenants.admission import Ticket
from app.core.tenants.meter import Over

Ending = Rejected | Over | None
"""Why there is no whole form; None when the client left."""


class UploadEnded(Exception):
    """The rest of a form that a worker has begun to receive will not come, or must not go there."""

    def __init__(self, why: Ending) -> None:
        super().__init__("the form was not completed")
        self.why = why


class Form(NamedTuple):
    """A form whose model is known. body: what was read of it, with the model's alias replaced. rest, length: of what is
    still to come, as a Call has them."""

    facts: RequestFacts
    asked_model: str
    body: bytes
    rest: Callable[[], Awaitable[bytes]] | None
    length: int | None


class Upload:
    """One form on its way. on_complete: told once, when nothing is left to be read of the client. size: octets read."""

    __slots__ = ("_headers", "_intake", "_on_complete", "_options", "_reader", "_receive", "is_complete", "size")

    def __init__(
        self,
        headers: Sequence[Header],
        receive: Receive,
        intake: Intake,
        options: ProxyOptions,
        on_complete: Callable[[], object],
    ) -> None:
        self._headers = headers
        self._receive = receive
        self._intake = intake
        self._options = options
        self._on_complete = on_complete
        self._reader: FormReader
        self.is_complete = False
        self.size = 0

    async def begin(self, ticket: Ticket, request_id: str, endpoint: str) -> Form | Ending:
        """Read until the model is known."""
        try:
            self._reader = FormReader(boundary_of(self._headers))
        except InvalidBody as error:
            return _rejected(error)
        length = next((int(value) for name, value in self._headers if name == b"content-length"), None)
        if length is not None and length > self._options.max_body_bytes:
            return self._too_large()
        pieces: list[bytes] = []
        while self._reader.model is None and not self.is_complete:
            piece = await self._next()
            if not isinstance(piece, bytes):
                return piece
            held = self._intake.hold(len(piece), ticket)
            if held is not None:
                return held
            pieces.append(piece)
        asked, body = self._reader.model, b"".join(pieces)
        if not asked:
            return Rejected(EdgeReason.MODEL_MISSING)
        model = self._options.aliases.get(asked, asked)
        read = len(body)
        if model != asked:
            start, end = self._reader.model_at
            body = body[:start] + model.encode() + body[end:]
        facts = RequestFacts(
            request_id,
            model,
            endpoint,
            routing_key({}, self._headers),
            service=SERVICES[endpoint],
            is_sent_once=not self.is_complete,
        )
        refused = read_manners(self._headers, facts)
        if refused is not None:
            return refused
        if self.is_complete:
            return Form(facts, asked, body, None, None)
        return Form(facts, asked, body, self._rest, None if length is None else length + len(body) - read)

    async def _rest(self) -> bytes:
        """The next piece for the worker, b"" at the end. Raises UploadEnded."""
        if self.is_complete:
            return b""
        piece = await self._next()
        if not isinstance(piece, bytes):
            raise UploadEnded(piece)
        return piece or await self._rest()

    async def _next(self) -> bytes | Ending:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            return None
        piece: bytes = message["body"]
        self.size += len(piece)
        if self.size > self._options.max_body_bytes:
            return self._too_large()
        try:
            self._reader.feed(piece)
            if not message["more_body"]:
                self._reader.end()
        except InvalidBody as error:
            return _rejected(error)
        if not message["more_body"]:
            self.is_complete = True
            self._on_complete()
        return piece

    def _too_large(self) -> Rejected:
        return Rejected(EdgeReason.BODY_TOO_LARGE, f"at most {self._options.max_body_bytes} bytes")


def _rejected(error: InvalidBody) -> Rejected:
    return Rejected(EdgeReason.INVALID_BODY, str(error), error.param)
