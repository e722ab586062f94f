"""The data path's client: one origin per worker address, each with its idle connections.

It looks no name up: a worker comes with the address that its name was checked and pinned to, and the name is used for
the Host header and for TLS alone. It follows no redirect either; an answer is an answer.
"""

import asyncio
import ssl

from app.core.fleet.address import bracketed, destination_of, literal_address
from app.core.fleet.exchange import Call, UpstreamError
from app.core.fleet.reasons import Failure
from app.core.fleet.worker import Worker
from app.upstream.connection import Connection, ExchangeLimits, StaleConnection, WorkerAnswer

IDLE_S = 3.0
"""How long an idle connection is kept. uvicorn, and so vLLM, closes its side after 5 s: ours must go first."""

SWEEP_S = 1.0


class HttpUpstream:
    """Sends calls to workers over kept-alive connections. Belongs to one event loop.

    connect_timeout_s: for TCP and TLS together. limits: for each exchange.
    credential: bearer token that workers want, sent with every call.
    """

    def __init__(
        self,
        *,
        connect_timeout_s: float,
        limits: ExchangeLimits,
        credential: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._limits = limits
        self._credential = credential
        self._tls = tls
        self._origins: dict[tuple[str, str], _Origin] = {}
        self._sweep: asyncio.TimerHandle | None = None

    async def send(self, worker: Worker, call: Call) -> WorkerAnswer:
        """Send `call` and wait for the head of the answer. Raises UpstreamError. Cancelling closes the connection."""
        origin = self._origins.get((worker.url, worker.address)) or self._open_origin(worker)
        head = origin.render_head(call)
        # What cannot be sent again is not risked on a connection that the worker may have closed meanwhile.
        connection = origin.take_idle() if call.rest is None else None
        if connection is not None:
            try:
                return await connection.exchange(head, call.body, self._limits)
            except StaleConnection:
                pass  # nothing of the answer was seen, so one try on a fresh connection repeats nothing
        connection = await origin.connect(self._connect_timeout_s)
        try:
            return await connection.exchange(head, call.body, self._limits, call.rest, is_chunked=call.length is None)
        except StaleConnection:
            raise UpstreamError(Failure.CONNECT, "closed by the worker as soon as it was opened") from None

    @property
    def open_connections(self) -> int:
        """Idle and busy ones together."""
        return sum(origin.connections for origin in self._origins.values())

    def close(self) -> None:
        """Close everything at once; calls under way fail."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for origin in self._origins.values():
            origin.close()
        self._origins.clear()

    def _open_origin(self, worker: Worker) -> "_Origin":
        origin = _Origin(worker.url, worker.address, self._credential, self._tls)
        self._origins[worker.url, worker.address] = origin
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep_idle)
        return origin

    def _sweep_idle(self) -> None:
        """Close what has been idle too long, and forget addresses that nothing goes to any more."""
        loop = asyncio.get_running_loop()
        for place, origin in list(self._origins.items()):
            origin.drop_idle_since(loop.time() - IDLE_S)
            if not origin.connections and not origin.pending:
                del self._origins[place]
        self._sweep = loop.call_later(SWEEP_S, self._sweep_idle) if self._origins else None


class _Origin:
    """One address: how to reach it, its idle connections, and the head bytes that every call to it shares."""

    def __init__(self, url: str, address: str, credential: str | None, tls: ssl.SSLContext | None) -> None:
        scheme, host, self._port, path = destination_of(url)
        self._loop = asyncio.get_running_loop()
        self._address = address or literal_address(host)
        self._tls = (tls or ssl.create_default_context()) if scheme == "https" else None
        self._name = host if self._tls else None
        """Whom the certificate must be for, however the worker is reached."""
        self._prefix = path.encode()
        shared = b"host: %s:%d\r\n" % (bracketed(host).encode(), self._port)
        if credential:
            shared += b"authorization: Bearer " + credential.encode() + b"\r\n"
        # Answers are relayed as they came, so they must come in a form that every client can read.
        self._shared = shared + b"accept-encoding: identity\r\n"
        self._idle: list[Connection] = []
        self._all: dict[Connection, None] = {}
        self.pending = 0

    @property
    def connections(self) -> int:
        return len(self._all)

    def render_head(self, call: Call) -> bytes:
        parts = [call.method, b" ", self._prefix, call.target, b" HTTP/1.1\r\n", self._shared]
        for name, value in call.headers:
            parts += (name, b": ", value, b"\r\n")
        if call.rest is not None:
            framing = (
                b"transfer-encoding: chunked\r\n" if call.length is None else b"content-length: %d\r\n" % call.length
            )
            parts.append(framing)
        elif call.body or call.method != b"GET":
            parts.append(b"content-length: %d\r\n" % len(call.body))
        parts.append(b"\r\n")
        return b"".join(parts)

    def take_idle(self) -> Connection | None:
        """The connection that was used last, so that the others can age out."""
        oldest = self._loop.time() - IDLE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and connection.idle_since > oldest:
                return connection
            connection.abort()
        return None

    async def connect(self, timeout_s: float) -> Connection:
        """A fresh connection; UpstreamError(CONNECT) when there is none in time."""
        if self._address is None:
            raise UpstreamError(Failure.CONNECT, "the worker's name was not looked up yet")
        self.pending += 1
        try:
            async with asyncio.timeout(timeout_s):
                # Cancelled at any moment, this closes what it opened, though not always with a connection_lost: so a
                # connection is counted only from here on.
                _, connection = await self._loop.create_connection(
                    lambda: Connection(self._loop, self),
                    self._address,
                    self._port,
                    ssl=self._tls,
                    server_hostname=self._name,
                )
        except TimeoutError:
            raise UpstreamError(Failure.CONNECT, f"no connection within {timeout_s:g} s") from None
        except OSError as error:
            raise UpstreamError(Failure.CONNECT, f"cannot connect: {error.strerror or error}") from error
        finally:
            self.pending -= 1
        if connection.is_open:
            self._all[connection] = None
        return connection

    def drop_idle_since(self, oldest: float) -> None:
        """Close the connections that have been idle since before `oldest` (loop time)."""
        kept = []
        for connection in self._idle:
            if connection.idle_since > oldest:
                kept.append(connection)
            else:
                connection.abort()
        self._idle = kept

    def close(self) -> None:
        for connection in list(self._all):
            connection.abort()
        self._idle.clear()

    # What a connection tells its owner

    def became_idle(self, connection: Connection) -> None:
        connection.idle_since = self._loop.time()
        self._idle.append(connection)

    def lost(self, connection: Connection) -> None:
        self._all.pop(connection, None)
        if connection in self._idle:
            self._idle.remove(connection)
