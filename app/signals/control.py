"""Control traffic to workers: small GETs with a limit on time and on size."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx

MAX_BODY = 4 * 1024 * 1024
"""Bytes read of one answer. A page of metrics is 75 KB; many LoRA adapters make a list of models long."""
KEEPALIVE_S = 3.0
"""Idle connections are closed by us before the worker does it (uvicorn: 5 s), which would cost a failed request."""
GRACE_S = 0.5
"""How much longer the whole exchange may take than one step of it, so that a failure to connect is seen as such."""
STALE = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)
"""How a kept connection fails that the worker closed just then."""


def control_client(verify: ssl.SSLContext | bool = True) -> httpx.AsyncClient:
    """The client that all workers share. No proxy of the environment, no redirect, no cookie: a worker decides neither
    where we go next nor what we send to another one."""
    # httpx logs every request at INFO: hundreds of lines a second here.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    return httpx.AsyncClient(
        trust_env=False,
        follow_redirects=False,
        verify=verify,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        headers={"user-agent": "warmset", "accept": "*/*", "accept-encoding": "identity"},
        # No limit: each worker has at most a few requests under way, and a wait for a free place would look like a
        # slow worker.
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEEPALIVE_S),
    )


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
    """GETs on one worker, with its credential. exchanges: those under way."""

    def __init__(
        self, client: httpx.AsyncClient, url: str, api_key: str | None, timeout_s: float, start: StartTask
    ) -> None:
        self._client = client
        self._url = url
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout_s = timeout_s
        self._start = start
        self._requests: dict[str, httpx.Request] = {}
        self.exchanges: set[asyncio.Task[Any]] = set()

    async def get(self, path: str) -> Reply:
        """The answer, whatever its status. Raises NoReply within the limit plus GRACE_S.

        A caller that is cancelled leaves at once and the exchange ends by itself: httpx loses places of its pool when
        it is cancelled, and workers come and go.
        """
        task = self._start(self._exchange(path), f"GET {path}")
        self.exchanges.add(task)
        task.add_done_callback(self.exchanges.discard)
        await asyncio.wait({task})
        if task.cancelled():
            raise NoReply("stopping", reachable=True)
        outcome: Reply | NoReply = task.result()
        if isinstance(outcome, NoReply):
            raise outcome
        return outcome

    async def _exchange(self, path: str) -> Reply | NoReply:
        """The outcome as a value: nobody may be left to raise it to."""
        try:
            async with asyncio.timeout(self._timeout_s + GRACE_S):
                try:
                    return await self._get(path)
                except STALE:
                    return await self._get(path)
        except NoReply as no_reply:
            return no_reply
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            return NoReply(_describe(error), reachable=False)
        except Exception as error:
            return NoReply(_describe(error), reachable=True)

    async def _get(self, path: str) -> Reply:
        request = self._requests.get(path)
        if request is None:  # building one costs more than a tenth of the whole exchange
            request = self._requests[path] = self._client.build_request(
                "GET", self._url + path, headers=self._headers, timeout=self._timeout_s
            )
        response = await self._client.send(request, stream=True)
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


def _describe(error: BaseException) -> str:
    """One printable line; what a worker wrote can be in it."""
    text = "".join(letter if letter.isprintable() else " " for letter in str(error)[:200])
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
