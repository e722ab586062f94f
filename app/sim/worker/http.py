"""One HTTP exchange over ASGI, with the headers that vLLM sends, and what makes a route."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from app.sim.worker.driver import Generation
from app.sim.worker.errors import ClientGone, unsupported_media_type
from app.sim.worker.fields import Fields, parse

if TYPE_CHECKING:
    from app.sim.worker.simulated import SimulatedWorker

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Header = tuple[bytes, bytes]

SIMULATED = (b"x-warmset-simulated", b"true")
VARY = (b"vary", b"Origin")
JSON = b"application/json"
EVENT_STREAM = b"text/event-stream; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Route:
    """`handle` answers `method` on `path`, on workers whose task is in `tasks` (empty: on all of them)."""

    method: str
    path: str
    handle: "Callable[[Exchange, SimulatedWorker], Awaitable[None]]"
    tasks: tuple[str, ...] = ()


class Exchange:
    """A request and the answer to it; the first byte of the answer goes out with `reply` or `open_stream`."""

    def __init__(self, scope: Message, receive: Receive, send: Send, *, echoes_request_id: bool = False) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.started = False
        self._receive = receive
        self._send = send
        self._always: tuple[Header, ...] = (SIMULATED,)
        if echoes_request_id:
            request_id = self.headers.get(b"x-request-id") or uuid.uuid4().hex.encode()
            self._always = ((b"x-request-id", request_id), SIMULATED)

    def new_id(self) -> str:
        """The id of what is answered: the client's X-Request-Id, or a fresh one as vLLM makes it."""
        given = self.headers.get(b"x-request-id")
        return given.decode("latin-1") if given else uuid.uuid4().hex[:16]

    async def body(self) -> bytes:
        chunks = []
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunks.append(message.get("body", b""))
            if not message.get("more_body", False):
                return b"".join(chunks)

    async def json(self) -> Any:
        """The body as JSON; 400 for another content type, as for what is not JSON."""
        if self.headers.get(b"content-type", b"").split(b";")[0].strip().lower() != JSON:
            raise unsupported_media_type()
        return parse(await self.body())

    async def fields(self) -> Fields:
        """The fields of a body that is a JSON object; 400 for another."""
        fields = Fields(await self.json())
        fields.check()
        return fields

    @asynccontextmanager
    async def watching(self, generation: Generation) -> AsyncIterator[None]:
        """While inside, the client's disconnect abandons `generation`, also before the first byte went out."""
        watch = asyncio.create_task(self._watch(generation))
        try:
            yield
        finally:
            watch.cancel()
            generation.abandon()

    async def _watch(self, generation: Generation) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        generation.abandon()

    async def reply(
        self,
        status: int,
        body: bytes,
        *,
        content_type: bytes | None = JSON,
        headers: Iterable[Header] = (VARY,),
        leading: Iterable[Header] = (),
    ) -> None:
        """Send the whole answer; `leading` headers come before the length, where vLLM has them."""
        sent = [*leading, (b"content-length", str(len(body)).encode())]
        if content_type is not None:
            sent.append((b"content-type", content_type))
        await self._start(status, [*sent, *headers])
        await self._send({"type": "http.response.body", "body": body})

    async def reply_json(self, payload: object) -> None:
        await self.reply(200, orjson.dumps(payload))

    async def open_stream(self, content_type: bytes = EVENT_STREAM, leading: Iterable[Header] = ()) -> None:
        await self._start(200, [*leading, (b"content-type", content_type), VARY])

    async def write(self, chunk: bytes) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def event(self, payload: object, name: str | None = None) -> None:
        """One server-sent event."""
        head = f"event: {name}\n".encode() if name else b""
        await self.write(b"%sdata: %s\n\n" % (head, orjson.dumps(payload)))

    async def close_stream(self, last: bytes = b"") -> None:
        await self._send({"type": "http.response.body", "body": last})

    async def _start(self, status: int, headers: list[Header]) -> None:
        self.started = True
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, *self._always]})
