"""The HTTP servers: uvicorn on sockets of ours, with the few things that a gateway's edge must do differently."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.api.errors import SHAPES, EdgeReason
from app.api.families import Family, error_body

log = logging.getLogger("warmset.listener")

BACKLOG = 2048


class EdgeProtocol(HttpToolsProtocol):
    """uvicorn's connection, which can also be told to end, and which refuses bad HTTP in OpenAI's shape."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {"warmset": {"connection": self}}

    def close_after_response(self) -> None:
        """Close the connection once the response under way is complete."""
        self.cycle.keep_alive = False

    def abort(self) -> None:
        """Close the connection now: a response was begun that cannot be completed."""
        self.cycle.disconnected = True
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.abort()  # an answer is under way: anything written now would become part of it
            return
        shape = SHAPES[EdgeReason.MALFORMED_HTTP]
        body = error_body(Family.OPENAI, EdgeReason.MALFORMED_HTTP)
        head = (
            b"HTTP/1.1 %d Bad Request\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head % (shape.status, len(body)) + body)
        self.transport.close()


class Listener(uvicorn.Server):
    """One application on one address, run inside a loop that somebody else owns."""

    def __init__(self, app: Any, host: str, port: int, *, name: str) -> None:
        config = uvicorn.Config(
            app,
            http=EdgeProtocol,
            ws="none",
            lifespan="off",
            server_header=False,
            access_log=False,
            log_config=None,
            # A client that keeps idle connections for 60 s or less never meets one that we just closed.
            timeout_keep_alive=75,
        )
        super().__init__(config)
        self.name = name
        self._host = host
        self._port = port
        self._socket: socket.socket | None = None

    def bind(self) -> None:
        """Take the address. OSError says which one, and why not."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((self._host, self._port))
            listening.listen(BACKLOG)
        except OSError as error:
            listening.close()
            raise OSError(
                error.errno, f"cannot listen on {self._host}:{self._port} ({self.name}): {error.strerror}"
            ) from error
        listening.setblocking(False)
        self._socket = listening

    @property
    def url(self) -> str:
        """Where it listens, with the port that was given for port 0."""
        assert self._socket is not None, "bind first"
        port = self._socket.getsockname()[1]
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{port}"

    async def run_until_told(self) -> None:
        """Serve until `should_exit` is set and the requests under way have ended, or `force_exit` is set."""
        assert self._socket is not None, "bind first"
        await self.serve(sockets=[self._socket])

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the process, which has several listeners."""
        yield


async def stop_listener(listener: Listener, serving: "asyncio.Task[None]", grace_s: float) -> None:
    """Take no new connections, let the requests under way end within `grace_s`, then cut them short."""
    listener.should_exit = True
    done, _ = await asyncio.wait([serving], timeout=grace_s)
    if done:
        return
    tasks = list(listener.server_state.tasks)
    log.warning("grace period is over", extra={"listener": listener.name, "requests_cut": len(tasks)})
    for task in tasks:
        task.cancel()
    await asyncio.wait([serving], timeout=5)
    listener.force_exit = True
    await asyncio.wait([serving], timeout=5)
