"""The HTTP servers: uvicorn on sockets of ours, with the few things that a gateway's edge must do differently."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

from app.api.clients import Clients
from app.api.edge import EdgeProtocol
from app.api.limits import DEFAULT_LIMITS, EdgeLimits

log = logging.getLogger("warmset.listener")

BACKLOG = 2048

KEEP_ALIVE_S = 75
"""A client or load balancer that keeps idle connections for 60 s never meets one that we just closed."""

CUT_S = 2.0
"""Time to tell the clients of requests that are cut short, and to close their connections."""


class Listener:
    """One address: taken by `bind`, served by `run`. Its requests end before it does.

    url: where it listens, once bound, with the port that was given for port 0.
    is_shared: further processes listen on the same address, and the kernel spreads connections over them.
    """

    def __init__(self, host: str, port: int, *, name: str, is_shared: bool = False) -> None:
        self.name = name
        self.url = ""
        self._host = host
        self._port = port
        self._is_shared = is_shared
        self._socket: socket.socket | None = None
        self._server: _Server | None = None

    def bind(self) -> None:
        """Take the address. OSError says which one, and why not."""
        listening = _bound(self._host, self._port, self.name, is_shared=self._is_shared)
        listening.listen(BACKLOG)
        self._socket = listening
        self.url = _url(self._host, listening)

    def release(self) -> None:
        """Give the address back, if that has not happened yet."""
        if self._socket is not None:
            self._socket.close()

    async def run(self, app: Any, limits: EdgeLimits = DEFAULT_LIMITS) -> None:
        """Serve until told to stop and the requests under way have ended."""
        assert self._socket is not None, "bind first"
        # It tells of every bad request and of its own coming and going; a client could fill a log with the former.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        config = uvicorn.Config(
            app,
            http=type(
                "LimitedEdge",
                (EdgeProtocol,),
                {"limits": limits, "clients": Clients(limits.max_connections_per_client)},
            ),
            ws="none",
            # Its default believes what any client on this machine says of where it comes from.
            proxy_headers=False,
            lifespan="off",
            server_header=False,
            access_log=False,
            log_config=None,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        self._server = _Server(config)
        await self._server.serve(sockets=[self._socket])

    async def stop(self, serving: "asyncio.Task[None]", grace_s: float, cut_now: "asyncio.Future[None]") -> None:
        """Take no new connections; requests under way may end within `grace_s`, or until `cut_now` is done."""
        server = self._server
        if server is None:
            return
        server.should_exit = True
        await asyncio.wait([serving, cut_now], timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            return
        requests = list(server.server_state.tasks)
        if requests:
            log.warning("requests cut short", extra={"listener": self.name, "requests": len(requests)})
        for request in requests:
            request.cancel()
        await asyncio.wait([serving], timeout=CUT_S)
        server.force_exit = True
        await asyncio.wait([serving], timeout=CUT_S)


class Reservation:
    """An address that serving processes will share: taken from others at once, and held while processes come and go.

    It does not listen, so it gets no connections. url: the address, with the port that was given for port 0.
    """

    def __init__(self, host: str, port: int, *, name: str) -> None:
        """OSError says which address cannot be had, and why."""
        # Sharing is open to any process of this user: one that already listens there must be met as taken.
        with _bound(host, port, name, is_shared=False) as first:
            first.listen(1)
            port = first.getsockname()[1]
        self._socket = _bound(host, port, name, is_shared=True)
        self.port = port
        self.url = _url(host, self._socket)

    def release(self) -> None:
        self._socket.close()


def _bound(host: str, port: int, name: str, *, is_shared: bool) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    bound.setblocking(False)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if is_shared:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise OSError(error.errno, f"cannot listen on {host}:{port} ({name} listener): {error.strerror}") from error
    return bound


def _url(host: str, bound: socket.socket) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}"


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the process, which has several listeners."""
        yield
