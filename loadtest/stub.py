"""Workers that cost next to nothing: they answer rendered bytes, so that what is in front of them is what is measured.

One process stands for several workers, each on a port of its own. It prints their URLs as one JSON line, and serves
until it is ended. Requests must come one at a time per connection and with lower-case header names, as the gateway and
our client send them; anything else is answered by closing.

Streams of one worker advance in steps, one event each, as the sequences in an engine's batch do. With step 0 the next
step comes as soon as the loop has sent the last one: every event is a write of its own, and only what the receiver is
too slow for comes together.
"""

import argparse
import asyncio
import json
import re
import time
from typing import cast

import uvloop

from loadtest.answers import completion_body, events, metrics_page, models_body, plain
from loadtest.prompts import PATH, STUB_HEADER

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
STREAM = re.compile(rb"\r\n" + STUB_HEADER + rb": (\d+)/(\d+)")

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ndate: Tue, 01 Dec 2026 00:00:00 GMT\r\nserver: uvicorn\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)

COMPLETION = plain(b"200 OK", completion_body())
NOT_FOUND = plain(b"404 Not Found", b'{"detail":"Not Found"}')


class StubWorker:
    """What the connections of one port share."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.running = 0
        self._started_s = time.time()
        self._steppers: dict[int, Stepper] = {}
        self._fixed = {
            b"/health": plain(b"200 OK", b""),
            b"/v1/models": plain(b"200 OK", models_body()),
            b"/version": plain(b"200 OK", b'{"version":"0.32.0"}'),
        }

    def get(self, target: bytes) -> bytes:
        if target == b"/metrics":
            return plain(b"200 OK", metrics_page(self.running, self._started_s), b"text/plain; version=0.0.4")
        return self._fixed.get(target, NOT_FOUND)

    def stepper(self, step_ms: int) -> "Stepper":
        stepper = self._steppers.get(step_ms)
        if stepper is None:
            stepper = self._steppers[step_ms] = Stepper(self.loop, step_ms / 1000)
        return stepper


class Stepper:
    """Writes one event to each of its streams per step of `step_s` seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, step_s: float) -> None:
        self._loop = loop
        self._step_s = step_s
        self._streams: dict[StubConnection, None] = {}
        self._is_scheduled = False
        self._next_at = 0.0

    def add(self, stream: "StubConnection") -> None:
        self._streams[stream] = None
        if not self._is_scheduled:
            self._is_scheduled = True
            self._next_at = self._loop.time()
            self._schedule()

    def remove(self, stream: "StubConnection") -> None:
        self._streams.pop(stream, None)

    def _schedule(self) -> None:
        if not self._step_s:
            self._loop.call_soon(self._step)
            return
        # On a grid of its own, so that what one step costs does not put off the next.
        self._next_at = max(self._next_at + self._step_s, self._loop.time())
        self._loop.call_at(self._next_at, self._step)

    def _step(self) -> None:
        for stream in list(self._streams):
            stream.advance()
        self._is_scheduled = bool(self._streams)
        if self._is_scheduled:
            self._schedule()


class StubConnection(asyncio.Protocol):
    """One connection to a stub worker."""

    def __init__(self, worker: StubWorker) -> None:
        self._worker = worker
        self._transport: asyncio.Transport | None = None
        self._head = b""
        self._missing = 0
        self._plan: tuple[int, int] | None = None
        self._chunks: tuple[bytes, ...] = ()
        self._sent = 0
        self._stepper: Stepper | None = None
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its class

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._stepper is not None:
            self._end_stream()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False

    def data_received(self, data: bytes) -> None:
        if self._missing:
            self._missing -= len(data)
        else:
            self._head = self._head + data if self._head else data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            head, size = self._head[: end + 2], len(self._head)
            self._head = b""
            if head.startswith(b"GET "):
                self._write(self._worker.get(head.split(b" ", 2)[1]))
                return
            if not head.startswith(b"POST " + PATH.encode() + b" "):
                self._write(NOT_FOUND)
                return
            length, plan = LENGTH.search(head), STREAM.search(head)
            self._plan = (int(plan[1]), int(plan[2])) if plan else None
            self._missing = end + 4 + (int(length[1]) if length else 0) - size
        if self._missing == 0:
            self._answer()
        elif self._missing < 0 and self._transport is not None:
            self._transport.abort()  # a second request before the answer to the first

    def advance(self) -> None:
        """Send the next event, unless the receiver is too slow for it."""
        if self._is_paused:
            return
        chunk = self._chunks[self._sent]
        self._sent += 1
        self._write(chunk)
        if self._sent == len(self._chunks):
            self._end_stream()

    def _answer(self) -> None:
        if self._plan is None:
            self._write(COMPLETION)
            return
        count, step_ms = self._plan
        self._chunks = _chunks(count)
        self._sent = 1
        self._worker.running += 1
        self._write(STREAM_HEAD + self._chunks[0])
        self._stepper = self._worker.stepper(step_ms)
        self._stepper.add(self)

    def _end_stream(self) -> None:
        assert self._stepper is not None
        self._stepper.remove(self)
        self._stepper = None
        self._worker.running -= 1

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


_FRAMED: dict[int, tuple[bytes, ...]] = {}


def _chunks(count: int) -> tuple[bytes, ...]:
    """The events of a stream, each in an HTTP chunk; the end of the body comes with the last one."""
    framed = _FRAMED.get(count)
    if framed is None:
        chunks = [b"%x\r\n%s\r\n" % (len(event), event) for event in events(count)]
        chunks[-1] += b"0\r\n\r\n"
        framed = _FRAMED[count] = tuple(chunks)
    return framed


async def _serve(workers: int) -> None:
    loop = asyncio.get_running_loop()
    urls = []
    servers = []
    for _ in range(workers):
        worker = StubWorker(loop)
        server = await loop.create_server(lambda worker=worker: StubConnection(worker), "127.0.0.1", 0, backlog=1024)  # type: ignore[misc]
        servers.append(server)
        urls.append(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    print(json.dumps(urls), flush=True)
    await asyncio.gather(*(server.serve_forever() for server in servers))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m loadtest.stub", description=__doc__)
    parser.add_argument("--workers", type=int, default=4, metavar="N")
    uvloop.run(_serve(parser.parse_args().workers))


if __name__ == "__main__":
    main()
