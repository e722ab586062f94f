"""Control traffic to workers: small GETs with a limit on time and on size."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import httpx

from app.core.fleet.address import bracketed, destination_of, literal_address

MAX_BODY = 4 * 1024 * 1024
"""Bytes read of one answer. A page of metrics is 75 KB; many LoRA adapters make a list of models long."""
KEEPALIVE_S = 3.0
"""Idle connections are closed by us before the worker does it (uvicorn: 5 s), which would cost a failed request."""
GRACE_S = 0.5
"""How much longer the whole exchange may take than one step of it, so that a failure to connect is seen as such."""
CLOSE_S = 0.5
"""Wait for exchanges under way when a worker is no longer watched."""
STALE = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)
"""How a kept connection fails that the worker closed just then."""


def tls_context(ca_file: str | None = None) -> ssl.SSLContext:
    """How workers with https are verified: by `ca_file`, or by the usual authorities. Costs about 20 ms: make one."""
    context = httpx.create_ssl_context(trust_env=False)
    if ca_file:
        context.load_verify_locations(ca_file)
    return context


StartTask = Callable[[Coroutine[Any, Any, Any], str], "asyncio.Task[Any]"]
"""Runs work in a task that somebody holds: `runtime.tasks.Tasks.start`."""


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes


class NoReply(Exception):
    """The worker did not answer, or not in a way that can be used. `reachable`: a connection to it was made."""

    def __init__(self, text: str, *, reachable: bool) -> None:
        super().__init__(text)
        self.reachable = reachable


class WorkerControl:
    """GETs on one worker at one address, with its credential. The URL's name is for the Host header and for TLS.

    Each worker has an httpx transport of its own, used without a client. A pool that all workers share costs work in
    proportion to the square of their number, and a place or lock of it that is lost when an exchange is given up
    (httpx loses some) stops all of them: 200 workers on a loaded machine never recovered. No client: no proxy of the
    environment, no redirect, no cookie. A worker decides neither where we go next nor what we send to another one.
    """

    def __init__(
        self, url: str, address: str, *, api_key: str | None, timeout_s: float, tls: ssl.SSLContext, start: StartTask
    ) -> None:
        scheme, host, port, path = destination_of(url)
        self._url = f"{scheme}://{bracketed(address)}:{port}{path}"
        self._extensions: dict[str, Any] = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), timeout_s)}
        if literal_address(host) is None:
            self._extensions["sni_hostname"] = host  # and whom the certificate must be for
        self._headers = {
            "host": f"{bracketed(host)}:{port}",
            "user-agent": "warmset",
            "accept": "*/*",
            "accept-encoding": "identity",
        }
        if api_key:
            self._headers["authorization"] = f"Bearer {api_key}"
        self._timeout_s = timeout_s
        self._tls = tls
        self._start = start
        self._transport = self._new_transport()
        self._requests: dict[str, httpx.Request] = {}
        self._exchanges: set[asyncio.Task[Any]] = set()

    async def get(self, path: str) -> Reply:
        """The answer, whatever its status. Raises NoReply within the limit plus GRACE_S.

        A caller that is cancelled leaves at once and the exchange ends by itself.
        """
        task = self._start(self._exchange(path), f"GET {path}")
        self._exchanges.add(task)
        task.add_done_callback(self._exchanges.discard)
        await asyncio.wait({task})
        if task.cancelled():
            raise NoReply("stopping", reachable=True)
        outcome: Reply | NoReply = task.result()
        if isinstance(outcome, NoReply):
            raise outcome
        return outcome

    async def close(self) -> None:
        """Give exchanges under way a moment to end, then close all connections."""
        if self._exchanges:
            _, late = await asyncio.wait(set(self._exchanges), timeout=CLOSE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._transport.aclose()

    async def _exchange(self, path: str) -> Reply | NoReply:
        """The outcome as a value: nobody may be left to raise it to."""
        transport = self._transport
        try:
            async with asyncio.timeout(self._timeout_s + GRACE_S):
                try:
                    return await self._get(transport, path)
                except STALE:
                    # Another kept connection may be as old as this one: only a new one cannot be stale.
                    async with self._new_transport() as fresh:
                        return await self._get(fresh, path)
        except NoReply as no_reply:
            return no_reply
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            return NoReply(_describe(error), reachable=False)
        except TimeoutError:
            # Given up in the middle of something: whatever the transport lost by that goes with it.
            if transport is self._transport:
                self._transport = self._new_transport()
            await transport.aclose()
            return NoReply("no complete answer in time", reachable=True)
        except Exception as error:
            return NoReply(_describe(error), reachable=True)

    async def _get(self, transport: httpx.AsyncHTTPTransport, path: str) -> Reply:
        request = self._requests.get(path)
        if request is None:
            request = httpx.Request("GET", self._url + path, headers=self._headers, extensions=self._extensions)
            self._requests[path] = request
        response = await transport.handle_async_request(request)
        try:
            if response.headers.get("content-encoding", "identity") != "identity":
                raise NoReply("the answer is compressed, which was not asked for", reachable=True)
            chunks, size = [], 0
            async for chunk in response.aiter_raw():
                size += len(chunk)
                if size > MAX_BODY:
                    raise NoReply(f"the answer is larger than {MAX_BODY} bytes", reachable=True)
                chunks.append(chunk)
            return Reply(response.status_code, b"".join(chunks))
        finally:
            await response.aclose()

    def _new_transport(self) -> httpx.AsyncHTTPTransport:
        return httpx.AsyncHTTPTransport(
            verify=self._tls,
            trust_env=False,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=2, keepalive_expiry=KEEPALIVE_S),
        )


def _describe(error: BaseException) -> str:
    """One printable line; what a worker wrote can be in it."""
    text = "".join(letter if letter.isprintable() else " " for letter in str(error)[:200])
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
