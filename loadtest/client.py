"""The load generator: HTTP/1.1 on `asyncio.Protocol`, closed loop or open loop.

Closed loop: each connection sends its next request when the answer to the last one is complete, so the server decides
how much is asked of it. Open loop: requests are due at fixed times whatever the server does, and latency counts from
when a request was due, not from when it could be sent: a server that stalls is charged for everybody who waited.
"""

import asyncio
from array import array
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import cast

import httptools

MAX_ERRORS = 100
"""After this many a run sends nothing more."""

MAX_CONNECTIONS = 512
"""Of an open loop; a request that finds none free is an error."""

DRAIN_S = 60.0
"""How long a run waits for what is under way at its end."""

Address = tuple[str, int]


class Tally:
    """What came back. Times in seconds.

    latency: of each request, from when it was due. ttft: until the first byte of the answer's body. gap: between
    arrivals of events at one stream. late: by how much an open loop sent after a request was due. pieces: parts in
    which streamed events came (HTTP chunks, unless one was cut by a read).
    """

    __slots__ = ("events", "gap", "late", "latency", "pieces", "requests", "ttft")

    def __init__(self) -> None:
        self.requests = 0
        self.events = 0
        self.pieces = 0
        self.latency = array("d")
        self.ttft = array("d")
        self.gap = array("d")
        self.late = array("d")


class Load:
    """Connections and what they do; the base of both loops.

    addresses: where connections go, in turn. prompts: requests, ready to send. events: that each answer must have, 0
    when answers are not streamed.
    """

    def __init__(self, addresses: Sequence[Address], prompts: Iterator[bytes], events: int) -> None:
        self.tally = Tally()
        self.errors: list[str] = []
        self.is_ending = False
        self.expected_events = events
        self.under_way = 0
        self._addresses = addresses
        self._prompts = prompts
        self._connections: list[ClientConnection] = []

    async def connect(self) -> "ClientConnection":
        host, port = self._addresses[len(self._connections) % len(self._addresses)]
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: ClientConnection(self), host, port)
        self._connections.append(connection)
        return connection

    def send(self, connection: "ClientConnection", due: float) -> None:
        self.under_way += 1
        connection.send(next(self._prompts), due)

    def completed(self, connection: "ClientConnection") -> None:
        """An answer is complete; errors were told before."""
        self.under_way -= 1

    def failed(self, why: str) -> None:
        if len(self.errors) < MAX_ERRORS:
            self.errors.append(why)
        if len(self.errors) == MAX_ERRORS:
            self.is_ending = True

    async def end(self) -> None:
        """Send nothing more, wait until all answers are here, and close."""
        self.is_ending = True
        give_up_at = perf_counter() + DRAIN_S
        while self.under_way and perf_counter() < give_up_at:  # noqa: ASYNC110 - an event would cost at every answer
            await asyncio.sleep(0.01)
        if self.under_way:
            self.failed(f"{self.under_way} answers did not end")
        for connection in self._connections:
            connection.close()


class ClosedLoop(Load):
    async def start(self, connections: int, spread_s: float = 0.0) -> None:
        """Open the connections, then let each begin; over `spread_s`, so that streams do not all end together."""
        opened = [await self.connect() for _ in range(connections)]
        for connection in opened:
            self.send(connection, perf_counter())
            if spread_s:
                await asyncio.sleep(spread_s / connections)

    def completed(self, connection: "ClientConnection") -> None:
        super().completed(connection)
        if not self.is_ending and connection.is_open:
            self.send(connection, perf_counter())


class OpenLoop(Load):
    SPIN_S = 0.0015
    """Timers of the loop have a grain of 1 ms, which is more than what is measured: the last bit is waited out."""

    async def start(self, connections: int, rate: float) -> None:
        """Open `connections`, and send `rate` requests per second from now until the end."""
        self._free = [await self.connect() for _ in range(connections)]
        self._loop = asyncio.get_running_loop()
        self._interval_s = 1 / rate
        self._due = perf_counter() + self._interval_s
        self._opening: set[asyncio.Task[None]] = set()
        self._loop.call_soon(self._turn)

    def completed(self, connection: "ClientConnection") -> None:
        super().completed(connection)
        if connection.is_open:
            self._free.append(connection)

    def _turn(self) -> None:
        if self.is_ending:
            return
        now = perf_counter()
        while self._due <= now:
            self._send_due(self._due, now)
            self._due += self._interval_s
        wait_s = self._due - now - self.SPIN_S
        if wait_s > 0:
            self._loop.call_later(wait_s, self._turn)
        else:
            self._loop.call_soon(self._turn)

    def _send_due(self, due: float, now: float) -> None:
        if self._free:
            self.tally.late.append(now - due)
            self.send(self._free.pop(), due)
        elif len(self._connections) + len(self._opening) < MAX_CONNECTIONS:
            task = self._loop.create_task(self._send_on_new(due))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
        else:
            self.failed("no connection was free for a request that was due")

    async def _send_on_new(self, due: float) -> None:
        try:
            connection = await self.connect()
        except OSError as error:
            self.failed(f"cannot connect: {error.strerror or error}")
        else:
            self.send(connection, due)


class ClientConnection(asyncio.Protocol):
    """One connection of a load, with one request under way at most."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._is_busy = False
        self._due = 0.0
        self._now = 0.0
        self._last_at = 0.0
        self._events = 0
        self._body_bytes = 0
        self._tail = b""

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, request: bytes, due: float) -> None:
        transport = self._transport
        self._is_busy = True
        self._due = due
        self._last_at = 0.0
        self._events = self._body_bytes = 0
        self._tail = b""
        if transport is None:
            self._fail("connection closed while it was idle")
        else:
            transport.write(request)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its class

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._is_busy:
            self._fail(f"connection lost: {exc}" if exc else "connection closed in an answer")

    def data_received(self, data: bytes) -> None:
        self._now = perf_counter()
        before = self._events
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.close()
            self._fail(f"malformed answer: {error}")
            return
        if self._events > before:
            if self._last_at:
                self._load.tally.gap.append(self._now - self._last_at)
            self._last_at = self._now

    # httptools callbacks

    def on_body(self, data: bytes) -> None:
        if not self._body_bytes:
            self._load.tally.ttft.append(self._now - self._due)
        self._body_bytes += len(data)
        if self._load.expected_events:
            events = data.count(b"\n\n")
            if data[:1] == b"\n" and self._tail[-1:] == b"\n" and self._tail != b"\n\n":
                events += 1  # the blank line was cut in two
            self._tail = data[-2:]
            tally = self._load.tally
            tally.events += events
            tally.pieces += 1
            self._events += events

    def on_message_complete(self) -> None:
        load = self._load
        tally = load.tally
        status = self._parser.get_status_code()
        if status != 200:
            load.failed(f"status {status}")
        elif not self._body_bytes or self._events != load.expected_events:
            load.failed(f"an answer of {self._body_bytes} bytes with {self._events} events")
        tally.requests += 1
        tally.latency.append(self._now - self._due)
        events, self._events = self._events, 0
        if events and self._last_at:
            tally.gap.append(self._now - self._last_at)
        self._is_busy = False
        load.completed(self)

    def _fail(self, why: str) -> None:
        self._is_busy = False
        self._load.failed(why)
        self._load.completed(self)
