"""One HTTP/1.1 connection to a worker, carrying one exchange at a time.

Invariants
    1. A connection goes back to its origin only after a complete answer to a completely sent request, with nothing
       unread behind it. Whatever else happens closes it.
    2. At most HIGH_WATER bytes of an answer (and one read of the socket) wait for a slow reader; then the socket is not
       read, and TCP holds the worker back.
    3. An answer that nobody wants any more closes the connection: that is how the worker learns to stop.
    4. Of a body that is still arriving, no more is taken than the worker has room for; an answer that comes before its
       end is the answer, and the rest of the body is not sent.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, cast

import httptools

from app.core.fleet.exchange import Header, StreamBroken, UpstreamError
from app.core.fleet.reasons import Failure

HIGH_WATER = 256 * 1024
"""Bytes of an answer held for the client before the worker's socket is no longer read."""

MAX_HEADER_BYTES = 1024 * 1024
"""Of one answer's header block: vLLM puts about 114 bytes per input into one header of a `bytes` pooling answer."""

MAX_HEADERS = 1000

HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
"""RFC 9110 §7.6.1: these speak of one connection and end with it."""


@dataclass(frozen=True, slots=True)
class ExchangeLimits:
    """Seconds. total: for a whole exchange, body included. first_byte: until the answer begins; a reasoning model may
    think for minutes. idle: between two pieces of the answer.

    header_bytes: of the answer's headers. Twice as many may come without a byte of a body, since the parser tells of a
    header when it is whole, and keeps one without an end.
    """

    total: float
    first_byte: float
    idle: float
    header_bytes: int = MAX_HEADER_BYTES


Rest = Callable[[], Awaitable[bytes]]


def chunk(piece: bytes) -> bytes:
    """As a chunk of HTTP/1.1; b"" is the last one."""
    return b"%x\r\n%s\r\n" % (len(piece), piece)


class StaleConnection(Exception):
    """A reused connection was closed before a byte of an answer: the worker had let it go while it was idle."""


class WorkerAnswer:
    """The answer to one exchange: `status` and `headers` once the head is here, `read()` for the body.

    is_ended_by_close: its end was that of the connection, which cannot be told from a worker that died.
    """

    __slots__ = (
        "_chunks",
        "_connection",
        "_error",
        "_held",
        "_is_complete",
        "_on_settled",
        "_waiter",
        "headers",
        "is_ended_by_close",
        "status",
    )

    def __init__(self, connection: "Connection") -> None:
        self.status = 0
        self.headers: list[Header] = []
        self._connection: Connection | None = connection
        self._chunks: list[bytes] = []
        self._held = 0
        self._is_complete = False
        self.is_ended_by_close = False
        self._error: Exception | None = None
        self._on_settled: Callable[[], None] | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_complete(self) -> bool:
        """The whole body has arrived and was read: the next `read` would give b""."""
        return self._is_complete and not self._chunks

    async def read(self) -> bytes:
        """The next bytes of the body as they came, b"" at its end. Raises StreamBroken, after what arrived before."""
        while not self._chunks:
            if self._is_complete:
                return b""
            if self._error is not None:
                raise self._error
            await self._wait()
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        if self._held > HIGH_WATER and self._connection is not None:
            self._connection.resume_reading()
        self._held = 0
        return data

    def close(self) -> None:
        """Done with it. Before the end of the body this closes the connection, and the worker stops working."""
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

    # Called by the connection

    @property
    def is_settled(self) -> bool:
        """Whether its head is here, or there will be none."""
        return self.status != 0 or self._error is not None

    async def unless_settled(self, rest: Rest) -> bytes | None:
        """The next piece of the request; None when this is settled before it comes."""
        try:
            async with asyncio.timeout(None) as waiting:
                self._on_settled = lambda: waiting.reschedule(0)
                return await rest()
        except TimeoutError:
            return None
        finally:
            self._on_settled = None

    async def wait(self) -> None:
        """Until something is different: of the answer, or as `look` says."""
        await self._wait()

    def look(self) -> None:
        self._wake()

    async def head(self) -> None:
        """Wait until `status` and `headers` are set."""
        while not self.status:
            if self._error is not None:
                raise self._error
            await self._wait()

    def head_arrived(self, status: int, headers: list[Header]) -> None:
        self.status = status
        self.headers = headers
        self._settled()

    def body_arrived(self, data: bytes) -> bool:
        """Take a piece of the body; True when no more should be read from the socket for now."""
        self._chunks.append(data)
        self._held += len(data)
        self._wake()
        return self._held > HIGH_WATER

    def completed(self, *, by_close: bool = False) -> None:
        self._is_complete = True
        self.is_ended_by_close = by_close
        self._connection = None
        self._wake()

    def failed(self, error: Exception) -> None:
        self._error = error
        self._connection = None
        self._settled()

    def _settled(self) -> None:
        self._wake()
        if self._on_settled is not None:
            self._on_settled()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Owner(Protocol):
    """Who keeps the connections of one address."""

    def became_idle(self, connection: "Connection") -> None:
        """It may carry another exchange."""
        ...

    def lost(self, connection: "Connection") -> None: ...


class Connection(asyncio.Protocol):
    """A connection of `owner`, which is told of its whole life."""

    def __init__(self, loop: asyncio.AbstractEventLoop, owner: Owner) -> None:
        self.idle_since = 0.0
        self._loop = loop
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser = httptools.HttpResponseParser(self)
        self._answer: WorkerAnswer | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._limits: ExchangeLimits | None = None
        self._header_limit = MAX_HEADER_BYTES
        self._began_at = 0.0
        self._sent_at = 0.0
        self._heard_at = 0.0
        self._exchanges = 0
        self._received = False
        self._paused = False
        self._is_sent = True
        self._is_full = False
        self._headers: list[Header] = []
        self._header_bytes = 0
        self._framing_bytes = 0
        self._is_delimited = False

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def exchange(
        self, head: bytes, body: bytes, limits: ExchangeLimits, rest: Rest | None = None, *, is_chunked: bool = False
    ) -> WorkerAnswer:
        """Send a request and wait for the head of the answer.

        Raises StaleConnection when a reused connection proves closed, UpstreamError otherwise. `limits` hold for the
        whole exchange, body included. Cancelling closes the connection, and so does whatever `rest` raises.
        """
        assert self._answer is None, "a connection carries one exchange at a time"
        transport = self._transport
        if transport is None or transport.is_closing():
            raise StaleConnection
        answer = self._answer = WorkerAnswer(self)
        self._exchanges += 1
        self._received = False
        self._framing_bytes = 0
        self._limits = limits
        self._header_limit = limits.header_bytes
        self._began_at = self._sent_at = self._heard_at = self._loop.time()
        self._timer = self._loop.call_at(self._due(limits), self._check_time)
        self._is_sent = rest is None
        if rest is not None and is_chunked:
            body = chunk(body)
        if len(body) <= HIGH_WATER:
            transport.write(head + body)
        else:
            transport.writelines((head, body))
        try:
            if rest is not None:
                await self._send_rest(answer, rest, is_chunked=is_chunked)
            await answer.head()
        except BaseException:
            # Not `abort`: whoever was cancelled just when its answer was complete has this connection no more.
            answer.close()
            raise
        return answer

    async def _send_rest(self, answer: WorkerAnswer, rest: Rest, *, is_chunked: bool) -> None:
        """Until the end of the body, or of the worker's patience with it."""
        while not answer.is_settled:
            if self._is_full:
                await answer.wait()
                continue
            piece = await answer.unless_settled(rest)
            transport = self._transport
            if piece is None or transport is None:
                return
            self._heard_at = self._loop.time()
            if is_chunked:
                transport.write(chunk(piece))
            elif piece:
                transport.write(piece)
            if not piece:
                self._is_sent = True
                self._sent_at = self._heard_at
                self._hasten()
                return

    def abort(self) -> None:
        """Close at once; an exchange under way fails."""
        answer = self._answer
        self._end_exchange()
        if answer is not None:
            text = "connection closed here"
            answer.failed(StreamBroken(text) if answer.status else UpstreamError(Failure.NO_ANSWER, text))
        if self._transport is not None:
            self._transport.abort()

    def resume_reading(self) -> None:
        if self._paused and self._transport is not None:
            self._paused = False
            self._heard_at = self._loop.time()
            self._hasten()
            self._transport.resume_reading()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its class

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        if self._answer is not None:
            self._answer.look()

    def data_received(self, data: bytes) -> None:
        self._received = True
        self._heard_at = self._loop.time()
        self._framing_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(f"malformed answer: {error}")
        if self._framing_bytes > 2 * self._header_limit and self._answer is not None:
            self._fail(f"{2 * self._header_limit} bytes without one of a body")

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._answer is not None and self._answer.status and not self._is_delimited and exc is None:
            # RFC 9112 §6.3: without a length the body ends where the connection does, if that was not torn down.
            answer = self._answer
            self._end_exchange()
            answer.completed(by_close=True)
        elif self._answer is not None:
            self._fail(f"connection closed: {exc}" if exc else "connection closed")
        self._owner.lost(self)

    # httptools callbacks

    def on_message_begin(self) -> None:
        self._headers = []
        self._header_bytes = 0
        self._is_delimited = False
        if self._answer is None:
            # Nobody asked: whatever this is, the next request must not take it for its answer.
            self.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > self._header_limit or len(self._headers) >= MAX_HEADERS:
            self._fail(f"header block of more than {self._header_limit} bytes or {MAX_HEADERS} headers")
            return
        if name in (b"content-length", b"transfer-encoding"):
            self._is_delimited = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if not 100 <= status <= 599:
            self._fail(f"malformed answer: status {status}")
            return
        if self._answer is not None and status >= 200:
            if status in (204, 304):
                # Without a body, whatever its headers say: passed on, a length would promise one.
                self._is_delimited = True
                self._headers = [header for header in self._headers if header[0] != b"content-length"]
            self._answer.head_arrived(status, end_to_end(self._headers))
            self._hasten()

    def on_body(self, data: bytes) -> None:
        self._framing_bytes = 0
        if self._answer is not None and self._answer.body_arrived(data) and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        answer, transport = self._answer, self._transport
        if answer is None or not answer.status or transport is None:
            return  # an interim answer (1xx), or one that failed already
        # Asked here because later it is always false, which would cost a new connection per request.
        is_reusable = self._parser.should_keep_alive() and self._is_sent and transport.get_write_buffer_size() == 0
        self._end_exchange()
        answer.completed()
        if is_reusable:
            self.resume_reading()
            self._owner.became_idle(self)
        else:
            transport.abort()  # not close: that would first send the rest of a request which is answered already

    # Endings

    def _due(self, limits: ExchangeLimits) -> float:
        """Loop time at which the first of the limits ends, as things are."""
        answer = self._answer
        if not self._is_sent:
            # Its body is still arriving: a client's pace is its listener's to judge, a worker must go on taking it.
            return min(self._began_at + limits.total, self._heard_at + limits.idle)
        if answer is None or not answer.status:
            return min(self._began_at + limits.total, self._sent_at + limits.first_byte)
        if self._paused:
            return self._began_at + limits.total  # it is our client who makes the worker wait
        return min(self._began_at + limits.total, self._heard_at + limits.idle)

    def _hasten(self) -> None:
        """What is due now may be due before the timer: it was set for the first byte, or for a client's pause."""
        if self._timer is not None and self._limits is not None:
            due = self._due(self._limits)
            if due < self._timer.when():
                self._timer.cancel()
                self._timer = self._loop.call_at(due, self._check_time)

    def _check_time(self) -> None:
        """One timer per exchange: pieces only move a stamp, and the timer looks at it when it ends."""
        limits, answer, now = self._limits, self._answer, self._loop.time()
        self._timer = None
        if limits is None or answer is None:
            return
        due = self._due(limits)
        if due > now:
            self._timer = self._loop.call_at(due, self._check_time)
        elif now >= self._began_at + limits.total:
            self._fail(f"no complete answer within {limits.total:g} s", Failure.TIMEOUT)
        elif not self._is_sent:
            self._fail(f"no more of the request was taken for {limits.idle:g} s", Failure.TIMEOUT)
        elif not answer.status:
            self._fail(f"no answer began within {limits.first_byte:g} s", Failure.TIMEOUT)
        else:
            self._fail(f"nothing came for {limits.idle:g} s", Failure.TIMEOUT)

    def _fail(self, text: str, failure: Failure = Failure.NO_ANSWER) -> None:
        answer = self._answer
        if answer is not None:
            self._end_exchange()
            if answer.status:
                answer.failed(StreamBroken(text, failure))
            elif self._exchanges > 1 and not self._received and failure is Failure.NO_ANSWER:
                answer.failed(StaleConnection())
            else:
                answer.failed(UpstreamError(failure, text))
        if self._transport is not None:
            self._transport.abort()

    def _end_exchange(self) -> None:
        self._answer = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def end_to_end(headers: list[Header]) -> list[Header]:
    """The headers that are meant for the other end: without hop-by-hop ones and those that `Connection` names."""
    named = [token.strip().lower() for name, value in headers if name == b"connection" for token in value.split(b",")]
    return [(name, value) for name, value in headers if name not in HOP_BY_HOP and name not in named]
