"""uvicorn's HTTP/1.1 connection, with the manners that an edge needs.

Rule 1: what a request may be is checked while it arrives; no application sees one that breaks a limit.
Rule 2: nothing waits for ever: not for the rest of a head, not for the rest of a body.
Rule 3: a refusal has a body in OpenAI's shape, and the connection ends with it, since nobody can say where the next
request would begin.

A client that closes its sending side counts as gone, since TCP cannot tell that from leaving. Requests that a client
sends before it has the answer to an earlier one are answered in turn. They are not looked at before, but their bytes
are read, so that its leaving is seen; one that sends more than AHEAD_MAX ahead is not read further, and not watched,
until the answer under way is complete.
"""

import asyncio
import fcntl
import sys
import termios
from contextlib import suppress
from typing import Any

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.api.clients import Clients
from app.api.errors import EdgeReason
from app.api.limits import DEFAULT_LIMITS, has_body, judge_head, refusal

UNTIL_CLOSE = 1 << 62
"""A length that no body reaches: the body of an HTTP/1.0 answer ends where its connection does."""

AHEAD_MAX = 64 * 1024
"""Bytes of later requests that are held while an earlier one is answered."""

FRAMING_PER_BYTE = 16
"""Bytes of chunk sizes and trailers that one byte of a body may come with: chunks of one byte take five."""

PIPELINE_MAX = 64
"""Requests of one connection that may wait for their turn."""

STALL_LOOKS = 8
"""How often a client that reads nothing is looked at within the time that it has."""

LINGER_S = 1.0
"""Time for a refused client to read why, and to stop sending."""


class EdgeProtocol(HttpToolsProtocol):
    """One connection. `limits` and `clients` are set by the listener, on a subclass of its own."""

    limits = DEFAULT_LIMITS
    clients = Clients(DEFAULT_LIMITS.max_connections_per_client)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head_bytes = 0
        self._is_in_head = False
        self._is_in_body = False
        self._is_upgrade_ignored = False
        self._refusal: EdgeReason | None = None
        self._counted_as: str | None = None
        self._is_lingering = False
        self._timer: asyncio.TimerHandle | None = None
        self._window_bytes = 0
        self._stall_timer: asyncio.TimerHandle | None = None
        self._waiting_bytes = 0
        self._took_at = 0.0
        self._sent_bytes = 0  # of the message after its head, with its framing
        self._body_bytes = 0  # the part of them that is body
        self._head_count = 0
        self._unanswered = 0  # requests that arrived whole
        self._ahead = bytearray()
        self._running: RequestResponseCycle | None = None  # `cycle` is the latest one, which may have to wait

    # For the application, as scope["extensions"]["warmset"]["connection"]

    def close_after_response(self) -> None:
        """Close the connection once the response under way is complete."""
        self._answering.keep_alive = False

    def linger_after_response(self, reason: EdgeReason = EdgeReason.INVALID_BODY) -> None:
        """The request is answered with its body unread (refused, for `reason`), and its client told `Connection:
        close`; to be called before the last byte. Closed at once, with bytes of the client unread, the kernel would
        send a reset, and the client might never see why. So its bytes are read and dropped for a moment."""
        self._refusal = reason
        self._is_lingering = True
        self._disarm()
        self._is_in_head = self._is_in_body = False
        self._unanswered = 0
        self._ahead.clear()
        self.pipeline.clear()
        self._answering.keep_alive = True  # so that uvicorn leaves the closing to us

    def abort(self) -> None:
        """Close the connection now: a response was begun that cannot be completed."""
        self._answering.disconnected = True
        self.transport.abort()

    def begin_until_close(self) -> None:
        """The response about to start has no length, and its client knows no chunks."""
        self._answering.chunked_encoding = False
        self._answering.expected_content_length = UNTIL_CLOSE

    def end_by_close(self) -> None:
        """The last byte of such a response was sent."""
        self._answering.response_complete = True
        self._answering.message_event.set()
        self.transport.close()

    @property
    def refused(self) -> EdgeReason | None:
        """Why the request that is being read was refused here, and its client told so; None when it was not."""
        return self._refusal

    @property
    def _answering(self) -> RequestResponseCycle:
        assert self._running is not None
        return self._running

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.max_connections:
            self._refuse(EdgeReason.TOO_MANY_CONNECTIONS)
            return
        self._counted_as = self.clients.enter(self.client[0] if self.client else "")
        if self._counted_as is None:
            self._refuse(EdgeReason.TOO_MANY_CLIENT_CONNECTIONS)
        else:
            self._arm_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self.clients.leave(self._counted_as)
        self._counted_as = None
        self._disarm()
        self._disarm_stall()
        self._leave_running()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._disarm_stall()
        self._arm_stall()

    def eof_received(self) -> None:
        self._watch_end()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._watch_end()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._disarm_stall()

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self.transport.is_closing() or self._refusal is not None:
            return
        if self._unanswered:
            self._ahead += data
            if len(self._ahead) > AHEAD_MAX:
                self.flow.pause_reading()
            return
        self._take(data)

    def _take(self, data: bytes) -> None:
        if self._is_in_body:
            self._window_bytes += len(data)
            self._sent_bytes += len(data)
        else:
            self._head_bytes += len(data)
        self._feed(data)
        if self._refusal is not None:
            self._refuse(self._refusal)
        elif self._unanswered:
            pass  # what came of the next request has to wait
        elif self._is_in_head and self._head_bytes > self.limits.max_head_bytes:
            self._refuse(EdgeReason.HEAD_TOO_LARGE)
        elif self._is_in_head:
            self._arm_head()
        elif self._is_in_body:
            if self._sent_bytes > self.limits.max_head_bytes + self._body_bytes * (FRAMING_PER_BYTE + 1):
                self._refuse(EdgeReason.HEAD_TOO_LARGE)
            elif self._timer is None:
                self._window_bytes = 0
                self._timer = self.loop.call_later(self.limits.body_window_s, self._check_pace)
        elif self._timer is None:
            # Blank lines before a head, or the rest of a body whose request is answered: still idle.
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _feed(self, data: bytes) -> None:
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = self._without_upgrade(data[upgrade.args[0] :])
            except httptools.HttpParserError:
                self._refusal = self._refusal or EdgeReason.MALFORMED_HTTP
                return
            else:
                return

    # httptools callbacks

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head = True
        self._is_upgrade_ignored = False
        self.scope["extensions"] = {"warmset": {"connection": self}}

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._disarm()
        if self._unanswered >= PIPELINE_MAX:
            self._refusal = EdgeReason.OVERLOADED
        else:
            self._refusal = self._refusal or judge_head(
                self.url, self.headers, self.parser.get_http_version(), self.limits
            )
        if self._refusal is None:
            self._is_in_body = True
            self._head_bytes = self._sent_bytes = self._body_bytes = 0
            self._head_count = len(self.headers)
            super().on_headers_complete()
            if self._unanswered:
                self.flow.resume_reading()  # paused because this one has to wait; AHEAD_MAX bounds what is read

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._refusal is None:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._is_upgrade_ignored or self._refusal is not None:
            return
        if self.parser.should_upgrade() and has_body(self.headers):
            # httptools takes the body for bytes of the other protocol; it comes with the exception that follows.
            self._is_upgrade_ignored = True
            return
        self._is_in_body = False
        self._disarm()
        if len(self.headers) > self._head_count:
            # Trailers: RFC 9110 §6.5.1 has them dropped where their meaning is not known, since nobody checked them.
            del self.headers[self._head_count :]
        if not self.cycle.response_complete:
            self._unanswered += 1
        super().on_message_complete()

    # Answers

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        if self._unanswered:
            self._unanswered -= 1
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch_end()
            return
        if self._unanswered:
            return
        if self._is_lingering:
            self._unset_keepalive_if_required()
            self._linger()
        elif self._refusal is not None:
            self._refuse(self._refusal)
        elif self._ahead or self._is_in_head or self._is_in_body:
            self._unset_keepalive_if_required()
            ahead = bytes(self._ahead)
            self._ahead.clear()
            self._take(ahead)

    def _leave_running(self) -> None:
        running = self._running
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()

    def _without_upgrade(self, rest: bytes) -> bytes:
        """RFC 9110 §7.8: a server that does not know the protocol goes on as if it had not been named.

        The parser has ended the message before its body. A new one is told of a message with the same framing.
        """
        if not self._is_upgrade_ignored:
            return rest  # it had no body, and is under way
        framing = [header for header in self.headers if header[0] in (b"content-length", b"transfer-encoding")]
        self.parser = httptools.HttpRequestParser(_Rest(self))
        head = b"".join(b"%s: %s\r\n" % header for header in framing)
        self._is_upgrade_ignored = False
        return b"POST / HTTP/1.1\r\nhost: -\r\n" + head + b"\r\n" + rest

    # Time

    def _arm_head(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.limits.head_timeout_s, self._refuse, EdgeReason.HEAD_TIMEOUT)

    def _check_pace(self) -> None:
        self._timer = None
        if self.flow.read_paused:
            pass  # it is we who do not read
        elif self._window_bytes < self.limits.body_pace:
            self._refuse(EdgeReason.BODY_TIMEOUT)
            return
        self._window_bytes = 0
        self._timer = self.loop.call_later(self.limits.body_window_s, self._check_pace)

    def _watch_end(self) -> None:
        """A connection that is being closed stays until its last bytes are taken; who takes none is cut then too."""
        if self._stall_timer is None and self.transport.get_write_buffer_size():
            self._arm_stall()

    def _arm_stall(self) -> None:
        self._waiting_bytes = self._count_waiting()
        self._took_at = self.loop.time()
        self._stall_timer = self.loop.call_later(self.limits.write_stall_s / STALL_LOOKS, self._check_stall)

    def _check_stall(self) -> None:
        """A slow client is waited for as long as it takes anything at all; one that takes nothing is cut."""
        waiting, now = self._count_waiting(), self.loop.time()
        if waiting < self._waiting_bytes:
            self._took_at = now
        if now < self._took_at + self.limits.write_stall_s:
            self._waiting_bytes = waiting
            look_s = self.limits.write_stall_s / STALL_LOOKS
            left_s = self._took_at + self.limits.write_stall_s - now
            self._stall_timer = self.loop.call_later(max(0.001, min(look_s, left_s)), self._check_stall)
        else:
            self.limits.on_refused(EdgeReason.WRITE_STALL)
            self.transport.abort()

    def _count_waiting(self) -> int:
        """Bytes that the client's kernel has not taken: ours, and those in our kernel.

        Ours alone move in steps of a third of the kernel's buffer, a megabyte and more.
        """
        waiting = self.transport.get_write_buffer_size()
        if sys.platform == "linux":
            with suppress(OSError):
                end = self.transport.get_extra_info("socket")
                waiting += int.from_bytes(fcntl.ioctl(end.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
        return waiting

    def _disarm_stall(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Refusals

    def send_400_response(self, msg: str) -> None:
        self._refuse(EdgeReason.MALFORMED_HTTP)

    def _refuse(self, reason: EdgeReason) -> None:
        """Answer and close. When an answer is under way, only close: what is written now would become part of it.

        Earlier requests that arrived whole get their answers first.
        """
        self._disarm()
        self._refusal = reason
        if self._unanswered:
            self._ahead.clear()
            return
        self._is_in_head = self._is_in_body = False
        if self.transport.is_closing():
            return
        self.limits.on_refused(reason)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                self.transport.abort()
                return
        self.transport.write(refusal(reason))
        self._linger()

    def _linger(self) -> None:
        self.flow.resume_reading()
        self.transport.write_eof()
        self._timer = self.loop.call_later(LINGER_S, self.transport.close)


class _Rest:
    """Receives the rest of a message whose head was read already, and everything after it."""

    def __init__(self, protocol: EdgeProtocol) -> None:
        self._protocol = protocol
        self._is_first = True

    def on_message_begin(self) -> None:
        if not self._is_first:
            self._protocol.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._is_first:
            self._protocol.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_first:
            self._protocol.on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._is_first:
            self._protocol.on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._protocol.on_body(body)

    def on_message_complete(self) -> None:
        self._is_first = False
        self._protocol.on_message_complete()
