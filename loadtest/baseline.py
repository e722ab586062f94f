"""A server without a gateway in it: uvicorn and one ASGI function that answers itself.

What it costs is what uvicorn costs, which no gateway on uvicorn can go below. It reads each request's body and answers
the stub's bytes; streams advance in steps as the stub's do. Prints its URL as a JSON line, and serves until it is
ended.
"""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn

from loadtest.answers import completion_body, events
from loadtest.prompts import STUB_HEADER

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

BODY = completion_body()
HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]
STREAM_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8")]


class Steps:
    """Lets all that wait go on together, every `step_s` seconds."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._waiting: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        if not self._step_s:
            await asyncio.sleep(0)
            return
        if self._waiting is None:
            loop = asyncio.get_running_loop()
            self._waiting = loop.create_future()
            loop.call_later(self._step_s - loop.time() % self._step_s, self._go)
        await asyncio.shield(self._waiting)

    def _go(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.set_result(None)


class Answerer:
    def __init__(self) -> None:
        self._steps: dict[int, Steps] = {}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        plan = next((value for name, value in scope["headers"] if name == STUB_HEADER), None)
        if plan is None:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await send({"type": "http.response.body", "body": BODY})
            return
        count, step_ms = map(int, plan.split(b"/"))
        steps = self._steps.setdefault(step_ms, Steps(step_ms / 1000))
        *first, last = events(count)
        await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
        for event in first:
            await send({"type": "http.response.body", "body": event, "more_body": True})
            await steps.wait()
        await send({"type": "http.response.body", "body": last})


def main() -> None:
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(json.dumps([f"http://127.0.0.1:{listening.getsockname()[1]}"]), flush=True)
    config = uvicorn.Config(
        Answerer(),
        http="httptools",
        loop="uvloop",
        ws="none",
        lifespan="off",
        server_header=False,
        access_log=False,
        log_config=None,
    )
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
