"""Messages between the control process and a serving process, over a socket pair.

A message is a JSON object behind its length (4 bytes, big endian). Both ends are ours and on one machine, so a message
that cannot be read is a broken invariant.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, cast

import orjson

MAX_BACKLOG = 64 * 1024 * 1024
"""Bytes waiting for a peer that does not read. Such a peer is as good as dead, and is dropped."""

FLUSH_POLL_S = 0.01

Message = dict[str, Any]


class Channel(asyncio.Protocol):
    """One end. `on_message` takes each message in turn, `on_closed` is called once when the other end is gone."""

    def __init__(self, on_message: Callable[[Message], None], on_closed: Callable[[], None]) -> None:
        self._on_message = on_message
        self._on_closed = on_closed
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()

    async def open(self, end: socket.socket) -> None:
        """Take over one socket of the pair."""
        await asyncio.get_running_loop().create_connection(lambda: self, sock=end)

    def send(self, message: Message) -> None:
        """Send, or do nothing when the other end is gone."""
        transport = self._transport
        if transport is None:
            return
        body = orjson.dumps(message)
        transport.write(len(body).to_bytes(4, "big") + body)
        if transport.get_write_buffer_size() > MAX_BACKLOG:
            transport.abort()

    async def flushed(self, limit_s: float = 1.0) -> None:
        """Wait until everything was handed to the kernel, at most `limit_s`."""
        waited_s = 0.0
        while self._transport is not None and self._transport.get_write_buffer_size() and waited_s < limit_s:
            await asyncio.sleep(FLUSH_POLL_S)
            waited_s += FLUSH_POLL_S

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        while len(buffer) >= 4:
            end = 4 + int.from_bytes(buffer[:4], "big")
            if len(buffer) < end:
                return
            message = orjson.loads(bytes(buffer[4:end]))
            del buffer[:end]
            self._on_message(message)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._on_closed()
