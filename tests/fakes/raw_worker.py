"""A worker on a raw socket that does exactly what a test says, byte by byte."""

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


@dataclass
class Connected:
    """One connection, as the worker sees it. `requests` holds head and body of each request read so far."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    requests: list[tuple[bytes, bytes]] = field(default_factory=list)

    async def read_request(self) -> bytes:
        """The body of the next request. IncompleteReadError when the other side closed."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        body = await self.reader.readexactly(length)
        self.requests.append((head, body))
        return body

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def until_closed(self) -> None:
        """Wait until the other side has closed."""
        while await self.reader.read(65536):
            pass

    def reset(self) -> None:
        """End with a reset instead of a clean close, which is what closing is where nothing is unread."""
        end = self.writer.get_extra_info("socket")
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Script = Callable[[Connected], Awaitable[None]]


async def answer_all(connection: Connected) -> None:
    """The polite worker: answers each request, keeps the connection."""
    while True:
        await connection.read_request()
        await connection.send(OK)


class RawWorker:
    """Listens on loopback; each new connection runs the script, the last one given when there are more."""

    def __init__(
        self, *scripts: Script, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
    ) -> None:
        self._at = (host, port)
        self._tls = tls
        self._scripts = scripts or (answer_all,)
        self.connections: list[Connected] = []
        self.closed = 0
        self._server: asyncio.Server | None = None
        self._running: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"http://{self._at[0]}:{self.port}"

    @property
    def requests(self) -> list[tuple[bytes, bytes]]:
        return [request for connection in self.connections for request in connection.requests]

    async def __aenter__(self) -> "RawWorker":
        host, port = self._at
        self._server = await asyncio.start_server(self._accept, host, port, limit=4 * 1024 * 1024, ssl=self._tls)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        connection = Connected(reader, writer)
        script = self._scripts[min(len(self.connections), len(self._scripts) - 1)]
        self.connections.append(connection)
        try:
            await script(connection)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.closed += 1
            writer.close()
            self._running.discard(task)
