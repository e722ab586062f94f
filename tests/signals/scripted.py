"""A worker that answers by a script, and an ear for what a monitor emits."""

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from app.core.fleet.events import Event
from app.signals.monitor import MonitorSettings
from tests.patience import FOR_EVER_S, eventually, lasting_port

Kind = TypeVar("Kind")


def page(running: int = 0, waiting: int = 0, start: float | None = 100.0, usage: float = 0.5) -> bytes:
    lines = [
        f'vllm:num_requests_running{{engine="0",model_name="m"}} {running}.0',
        f'vllm:num_requests_waiting{{engine="0",model_name="m"}} {waiting}.0',
        f'vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} {usage}',
    ]
    if start is not None:
        lines.append(f"process_start_time_seconds {start}")
    return "\n".join(lines).encode() + b"\n"


class ScriptedWorker:
    """An HTTP server on a port of its own, at a loopback address. Its port stays its own while it is stopped.

    answers: path -> (status, body), or raw bytes to send as they are, or None to say nothing at all. heads: the request
    heads that came, by path. delay_s: pause before each answer. drip_s: pause after each byte of a raw one.
    once_per_connection: the second request on a connection closes it, unanswered."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.host = host
        self._tls = tls
        self.answers: dict[str, tuple[int, bytes] | bytes | None] = {
            "/health": (200, b""),
            "/metrics": (200, page()),
            "/v1/models": (200, b'{"object":"list","data":[{"id":"m","created":1}]}'),
            "/version": (200, b'{"version":"0.32.0"}'),
        }
        self.asked: Counter[str] = Counter()
        self.heads: dict[str, str] = {}
        self.connections = 0
        self.busy: Counter[str] = Counter()
        self.most_at_once: Counter[str] = Counter()
        self.delay_s = 0.0
        self.held: set[str] = set()
        self._waiting: Counter[str] = Counter()
        self._let_go = asyncio.Event()
        self.drip_s = 0.0
        self.once_per_connection = False
        self.port = port or lasting_port()
        self._server: asyncio.Server | None = None
        self._conversations: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, self.host, self.port, ssl=self._tls)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            for conversation in self._conversations:
                conversation.cancel()
            await asyncio.gather(*self._conversations)
            await self._server.wait_closed()
            await asyncio.sleep(0.01)  # uvloop closes what was aborted in its next turns
            self._server = None

    async def asked_again(self, path: str, times: int) -> None:
        """Wait until `path` was asked for that many more times."""
        enough = self.asked[path] + times
        await eventually(lambda: self.asked[path] >= enough)

    def forget(self) -> None:
        self.asked.clear()

    async def hold(self, path: str) -> None:
        """Wait until somebody who asks for `path` is made to wait for his answer."""
        self.held.add(path)
        await eventually(lambda: self._waiting[path])

    def let_go(self) -> None:
        self.held.clear()
        self._let_go.set()
        self._let_go = asyncio.Event()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        conversation = asyncio.current_task()
        assert conversation is not None
        self._conversations.add(conversation)
        conversation.add_done_callback(self._conversations.discard)
        answered = 0
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                if answered and self.once_per_connection:
                    return
                answered += 1
                path = head.split()[1]
                self.asked[path] += 1
                self.heads[path] = head
                self.busy[path] += 1
                self.most_at_once[path] = max(self.most_at_once[path], self.busy[path])
                await asyncio.sleep(self.delay_s)
                if path in self.held:
                    self._waiting[path] += 1
                    await self._let_go.wait()
                    self._waiting[path] -= 1
                self.busy[path] -= 1
                answer = self.answers.get(path, (404, b"{}"))
                if answer is None:
                    await asyncio.sleep(3600)
                elif isinstance(answer, bytes):
                    for place in range(len(answer) if self.drip_s else 0):
                        writer.write(answer[place : place + 1])
                        await asyncio.sleep(self.drip_s)
                    writer.write(b"" if self.drip_s else answer)
                    writer.close()
                    with suppress(ConnectionError):
                        await writer.wait_closed()
                    return
                else:
                    status, body = answer
                    writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n" % (status, len(body)) + body)
                    await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()


class Names:
    """A name server that says what a test wants. addresses: of each name; what is not there is unknown.
    asked: look-ups, by name. silence: until it is set, a look-up of a name in `silent` is not answered."""

    def __init__(self) -> None:
        self.addresses: dict[str, list[str]] = {}
        self.asked: Counter[str] = Counter()
        self.silent: set[str] = set()
        self.silence = asyncio.Event()

    async def look_up(self, name: str) -> list[str]:
        self.asked[name] += 1
        if name in self.silent:
            await self.silence.wait()
        if name not in self.addresses:
            raise OSError(-2, "Name or service not known")
        return self.addresses[name]


PATHS = ("/v1/chat/completions", "/v1/embeddings", "/pooling", "/classify", "/tokenize")

SETTINGS = MonitorSettings(
    health_check_interval_s=0.2,
    health_check_timeout_s=FOR_EVER_S,
    load_interval_s=0.05,
    describe_interval_s=0.3,
    worker_api_key="w0rker",
    paths=PATHS,
)
"""Quick turns, and all the time in the world for each answer."""


class Ear:
    """Hears what is emitted, and can wait for it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.in_flight: dict[str, int] = {}

    async def hear(self, check: Callable[[Event], bool]) -> Event:
        """The first event that passes, of those since the last forget()."""
        try:
            event: Event = await eventually(lambda: next(filter(check, self.events), None))
        except AssertionError as error:
            raise AssertionError(f"heard at last: {self.events[-5:]}") from error
        return event

    def forget(self) -> None:
        self.events.clear()

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [event for event in self.events if isinstance(event, kind)]
