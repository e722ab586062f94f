"""One request through the gateway: read, decide, relay, account. The same path for every endpoint.

Invariants
    1. Whatever happens, what a request holds (load, a worker's connection) is given back exactly once.
    2. From the moment that the body is read, a client that leaves ends the work: the watch cancels the request's task,
       wherever it waits, and the worker's connection is closed.
    3. The client gets the worker's status, body bytes and end-to-end headers (see headers.py) unchanged. When an event
       stream breaks, one error event follows what arrived; when any other answer breaks, so does the connection: its
       length is a promise.
    4. A stream that was begun to keep it alive (see keepalive.py) carries the worker's events unchanged, or ends with
       one error event; nothing is ever asked twice for it.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Protocol

from app.api.auth import Keys
from app.api.batches import Part
from app.api.endpoints import ProxyEndpoint
from app.api.errors import SHAPES, EdgeReason, Reason
from app.api.facts import PRIORITY_HEADER, Inbound, Rejected, read_request
from app.api.families import error_event, is_over
from app.api.fan_out import FannedOut, FanOut, cut_up
from app.api.headers import is_event_stream, request_id, to_client, to_worker
from app.api.intake import HeldBodies, Intake
from app.api.keepalive import HEAD, KeepAlive
from app.api.metadata import LargeMetadata, metadata_of
from app.api.options import ProxyOptions
from app.api.relay import LAST_EVENTS_MAX, EventStream, usage_of
from app.api.reply import Reply
from app.api.respond import Message, Receive, Scope, Send, send_refusal
from app.api.tenancy import Tenancy, rate_limit_headers, retry_headers
from app.api.upload import Ending, Form, Upload, UploadEnded
from app.api.watch import ClientWatch
from app.api.worker_error import WorkerError, read_worker_error
from app.core.fleet.commands import Dispatch, Refuse
from app.core.fleet.exchange import Call, Header, StreamBroken
from app.core.fleet.priority import BY_LABEL, Priority
from app.core.fleet.reasons import Failure, Outcome, RefusalReason
from app.core.fleet.record import RequestRecord
from app.core.fleet.request import RequestFacts
from app.core.fleet.tenant import Grant
from app.core.overload.pressure import Pressure
from app.core.tenants.admission import Ticket
from app.core.tenants.charge import tokens_of
from app.core.tenants.keyring import may_use
from app.core.tenants.meter import Over
from app.runtime.gateway import Exchange, Gateway
from app.runtime.ports import Answer
from app.runtime.tasks import Tasks

log = logging.getLogger("warmset.api")

SHOWN_MODEL = 100
"""Characters of an unknown model's name that its refusal repeats."""


class Requests(Protocol):
    """Who is told of every request that ended, and in which classes gaps between events are counted."""

    gap_bounds_s: Sequence[float]

    def ended(self, record: RequestRecord) -> None: ...


@dataclass(frozen=True, slots=True)
class Proxy:
    """Serves proxy endpoints. `new_id` makes a request id; `clock` gives monotonic seconds.

    pressure: whether this process can keep up. draw: a number from 0 to 1, by chance.
    """

    gateway: Gateway
    keys: Keys
    tenancy: Tenancy
    options: ProxyOptions
    requests: Requests
    tasks: Tasks
    clock: Callable[[], float]
    new_id: Callable[[], str]
    held: HeldBodies = field(default_factory=HeldBodies)
    pressure: Pressure = field(default_factory=Pressure)
    draw: Callable[[], float] = lambda: 0.0
    metadata: LargeMetadata = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "metadata", LargeMetadata(self.options.max_metadata_bytes))

    async def serve(self, endpoint: ProxyEndpoint, scope: Scope, receive: Receive, send: Send) -> None:
        record = RequestRecord(
            request_id(scope["headers"], self.new_id), scope["method"], endpoint.path, started_at=self.clock()
        )
        request = _Request(self, endpoint, record, scope, receive, send)
        try:
            await request.run()
        finally:
            now = self.clock()
            record.duration_s = now - record.started_at
            request.release(now)
            self.requests.ended(record)


class _Request:
    """One request from its head to the last byte of its answer."""

    __slots__ = (
        "_endpoint",
        "_family",
        "_grant",
        "_headers",
        "_intake",
        "_keep_alive",
        "_proxy",
        "_receive",
        "_record",
        "_reply",
        "_scope",
        "_stream",
        "_ticket",
        "_upload",
        "_watch",
    )

    def __init__(
        self, proxy: Proxy, endpoint: ProxyEndpoint, record: RequestRecord, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._proxy = proxy
        self._endpoint = endpoint
        self._family = endpoint.family
        self._record = record
        self._scope = scope
        self._headers: list[Header] = scope["headers"]
        self._receive = receive
        self._watch = ClientWatch(receive)
        self._reply = Reply(scope, send)
        self._stream: EventStream | None = None
        self._keep_alive: KeepAlive | None = None
        self._grant: Grant
        self._ticket: Ticket | None = None
        self._intake = Intake(proxy.held, proxy.options)
        self._upload: Upload | None = None

    async def run(self) -> None:
        try:
            await self._run()
        except asyncio.CancelledError:
            self._watch.task.uncancel()
            if self._watch.is_client_gone:
                self._record.outcome = Outcome.CLIENT_GONE
                if self._stream is not None:
                    self._record.events = self._stream.events  # what it got is charged to its tenant
            else:
                self._record.outcome = Outcome.FAILED
                await self._cut_short(EdgeReason.SHUTTING_DOWN, "the grace period is over")
        finally:
            self._hush()
            self._intake.let_go()

    async def _run(self) -> None:
        grant = self._proxy.keys.identify(self._headers)
        if isinstance(grant, EdgeReason):
            await self._refuse(grant, is_body_unread=True)
            return
        self._grant = grant
        self._record.tenant, self._record.key_name = grant.tenant, grant.name
        if self._proxy.pressure.level and self._is_shed(grant):
            await self._refuse(EdgeReason.OVERLOADED, "it cannot keep up just now", is_body_unread=True)
            return
        ticket = self._proxy.tenancy.admission.admit(grant, self._record.started_at)
        if isinstance(ticket, Over):
            await self._limited(ticket)
            return
        self._ticket = ticket
        if self._endpoint.is_form:
            await self._run_form(grant, ticket)
            return
        body = await self._intake.read(self._headers, self._receive, ticket)
        if not isinstance(body, bytes):
            await self._unread(body)
            return
        self._proxy.tasks.start(self._watch.run(), "client watch")
        inbound = self._understand(body)
        if isinstance(inbound, Rejected):
            await self._refuse(inbound.reason, inbound.detail, inbound.param)
            return
        facts, call, asked_model = inbound.facts, self._call(inbound.body), inbound.asked_model
        keepalive_s = self._proxy.options.sse_keepalive_s
        if keepalive_s and self._endpoint.can_stream and inbound.document.get("stream") is True:
            self._keep_alive = KeepAlive(self._proxy.tasks, keepalive_s, self._reply, self._begin_early)
            self._keep_alive.start()
        parts: list[Part] = []
        if self._proxy.options.split_batches and self._endpoint.splits:
            parts = cut_up(inbound, self._endpoint, self._proxy.gateway.router.pools, self._proxy.options)
        del body, inbound  # from here on the call alone has it, which lets go of it when a worker answers
        await self._dispatch(facts, call, asked_model, parts)

    def _is_shed(self, grant: Grant) -> bool:
        """Whether this is one of the requests that are refused so that the others are served well."""
        asked = next((value for name, value in self._headers if name == PRIORITY_HEADER), b"")
        priority = min(BY_LABEL.get(asked.decode("latin-1").lower(), Priority.NORMAL), grant.priority)
        return self._proxy.pressure.refuses(priority, self._proxy.draw())

    def _understand(self, body: bytes) -> Inbound | Rejected:
        record = self._record
        record.bytes_in = len(body)
        inbound = read_request(
            body,
            self._headers,
            endpoint=record.endpoint,
            request_id=record.request_id,
            aliases=self._proxy.options.aliases,
            limits=self._proxy.options.body_limits,
        )
        if isinstance(inbound, Rejected):
            return inbound
        asked = inbound.asked_model
        if not may_use(self._grant, asked, inbound.facts.model):
            return Rejected(EdgeReason.MODEL_NOT_ALLOWED, f"asked for: {asked[:SHOWN_MODEL]!r}")
        return self._proxy.tenancy.claim(inbound, self._grant, takes_salt=self._endpoint.takes_salt)

    async def _run_form(self, grant: Grant, ticket: Ticket) -> None:
        proxy, record = self._proxy, self._record

        def watch() -> None:
            proxy.tasks.start(self._watch.run(), "client watch")

        upload = self._upload = Upload(self._headers, self._receive, self._intake, proxy.options, watch)
        form = await upload.begin(ticket, record.request_id, self._endpoint.path)
        if isinstance(form, Form) and not may_use(grant, form.asked_model, form.facts.model):
            form = Rejected(EdgeReason.MODEL_NOT_ALLOWED, f"asked for: {form.asked_model[:SHOWN_MODEL]!r}")
        if not isinstance(form, Form):
            await self._unread(form)
            return
        proxy.tenancy.own(form.facts, grant)
        facts, asked_model = form.facts, form.asked_model
        call = self._call(form.body)
        call.rest, call.length = form.rest, form.length
        del form  # the call alone has what was read
        try:
            await self._dispatch(facts, call, asked_model)
        except UploadEnded as ended:
            await self._unread(ended.why)
        finally:
            record.bytes_in = upload.size

    async def _unread(self, why: Ending) -> None:
        """There is no whole body: refuse what came of it, if there is anybody left to tell."""
        refused = self._connection.refused
        if why is None and refused is not None:
            self._record.status = SHAPES[refused].status  # told and counted where it was found
        elif why is None:
            self._record.outcome = Outcome.CLIENT_GONE
        elif isinstance(why, Over):
            await self._limited(why)
        else:
            await self._refuse(why.reason, why.detail, why.param, is_body_unread=self._upload is None)

    @property
    def _is_uploading(self) -> bool:
        """Whether there is more of a form that nobody will read."""
        return self._upload is not None and not self._upload.is_complete

    def _call(self, body: bytes) -> Call:
        scope = self._scope
        target: bytes = scope["raw_path"]
        if scope["query_string"]:
            target += b"?" + scope["query_string"]
        headers = to_worker(self._headers, self._record.request_id)
        return Call(scope["method"].encode(), target, headers, body)

    async def _dispatch(self, facts: RequestFacts, call: Call, asked_model: str, parts: Sequence[Part] = ()) -> None:
        gateway, record = self._proxy.gateway, self._record
        if facts.model in gateway.router.pools:
            record.model = facts.model  # never a name that nobody serves: it becomes a metric's label
        opened: Exchange | FannedOut | Refuse | Rejected
        if parts:
            call.body = b""
            opened = await FanOut(gateway, facts, call, self._intake.hold_answer).open(parts)
        else:
            opened = await gateway.open(facts, call)
            call.body = b""  # sent, and never sent again: a stream of an hour need not keep its prompt
            self._intake.let_go()
        if isinstance(opened, Rejected):
            await self._cut_short(opened.reason, opened.detail)
            return
        if isinstance(opened, Refuse):
            detail = opened.detail
            if opened.reason is RefusalReason.MODEL_NOT_FOUND:
                detail = f"asked for: {asked_model[:SHOWN_MODEL]!r}"
            await self._cut_short(opened.reason, detail, retry_after_s=opened.retry_after_s)
            return
        record.dispatch, record.queued_s = opened.dispatch, opened.waited_s
        try:
            record.outcome = await self._relay(opened)
        except StreamBroken as broken:
            record.outcome = Outcome.TIMED_OUT if broken.failure is Failure.TIMEOUT else Outcome.BROKEN
            worker = opened.dispatch.worker.id
            log.warning(
                "answer broken", extra={"request_id": record.request_id, "worker": worker, "cause": str(broken)}
            )
            await self._cut_short(EdgeReason.STREAM_BROKEN, str(broken))
        except asyncio.CancelledError:
            record.outcome = Outcome.CLIENT_GONE
            raise
        finally:
            opened.finish(record.outcome)

    async def _begin_early(self) -> None:
        """Begin the stream in place of a worker that is silent."""
        headers = [*HEAD, (b"x-request-id", self._record.request_id.encode("ascii")), *self._limit_headers()]
        await self._reply.begin(200, headers)
        self._record.status = 200
        self._stream = EventStream(self._proxy.clock, self._proxy.requests.gap_bounds_s)

    def _limit_headers(self) -> list[Header]:
        return rate_limit_headers(self._ticket.meters, self._proxy.clock()) if self._ticket is not None else []

    def _hush(self) -> None:
        """No more keep-alive: what follows is of the answer, or ends it."""
        if self._keep_alive is not None:
            self._keep_alive.stop()

    async def _relay(self, exchange: Exchange | FannedOut) -> Outcome:
        """Pass the answer on until its end. FAILED: it cannot follow a head that was sent in its place."""
        answer, dispatch = exchange.answer, exchange.dispatch
        record, reply, clock = self._record, self._reply, self._proxy.clock
        headers = to_client(answer.headers, record.request_id)
        is_stream = is_event_stream(headers)
        metadata = metadata_of(headers)
        if not reply.is_started:
            self._hush()
            too_large = self._proxy.metadata.problem(metadata, dispatch.worker.id)
            if too_large is not None:
                await self._refuse(EdgeReason.METADATA_TOO_LARGE, too_large)
                return Outcome.FAILED
            record.status = answer.status
            if self._proxy.options.expose_routing_headers:
                headers += routing_headers(exchange.dispatches)
            headers += self._limit_headers()
            if self._is_uploading:
                headers.append((b"connection", b"close"))
            await reply.begin(answer.status, headers)
            if is_stream:
                self._stream = EventStream(clock, self._proxy.requests.gap_bounds_s)
                if self._keep_alive is not None and reply.is_open_ended:
                    self._keep_alive.start()  # a worker may send its head at once, and think then
        elif not is_stream or answer.status >= 300:
            await self._tell_instead(answer, dispatch)
            return Outcome.FAILED
        stream = self._stream
        tail = b""
        is_over = False
        while not is_over:
            piece = await answer.read()
            self._hush()
            is_over = answer.is_complete
            if piece and not record.bytes_out:
                exchange.began()
            if stream is not None:
                piece = stream.whole_events(piece)
                if is_over:
                    rest = stream.rest()
                    if rest and answer.is_ended_by_close:
                        raise StreamBroken("the connection ended inside an event")
                    piece += rest
                elif not piece:
                    continue
                stream.saw(piece)
            else:
                tail = (tail + piece)[-LAST_EVENTS_MAX:]
            if record.ttft_s is None and answer.status < 400:
                record.ttft_s = clock() - record.started_at
            record.bytes_out += len(piece)
            if is_over and self._is_uploading:
                self._connection.linger_after_response()
            await reply.pass_on(piece, is_last=is_over)
        self._watch.stop()
        self._account(metadata or (tail if stream is None else stream.last_events))
        return Outcome.SERVED

    async def _tell_instead(self, answer: Answer, dispatch: Dispatch) -> None:
        """The stream was begun in the worker's place, and now the worker answers with something else."""
        worker, status = dispatch.worker.id, answer.status
        log.warning(
            "answer does not fit a stream begun early",
            extra={"request_id": self._record.request_id, "worker": worker, "worker_status": status},
        )
        if status < 400:
            await self._cut_short(EdgeReason.NOT_A_STREAM, f"status {status}")
        else:
            said = await read_worker_error(answer)
            await self._cut_short(EdgeReason.WORKER_ERROR, said.text, said)

    async def _cut_short(
        self, reason: Reason, detail: str, said: WorkerError | None = None, *, retry_after_s: float | None = None
    ) -> None:
        """There will be no answer, or no whole one: say so in the way that the client can still be told."""
        self._hush()
        stream = self._stream
        if not self._reply.is_started:
            headers = [(b"retry-after", b"%d" % ceil(retry_after_s))] if retry_after_s is not None else []
            await self._refuse(reason, detail, headers=headers)
            return
        self._record.refusal = reason.value
        if stream is None or not self._reply.is_open_ended:
            self._reply.abort()
        elif reason is EdgeReason.STREAM_BROKEN and is_over(self._family, stream):
            await self._reply.end_with(b"")  # but for its last chunk it is whole
            self._record.refusal, self._record.outcome = "", Outcome.SERVED
            self._account(stream.last_events)
        else:
            first, last = stream.first_event, stream.last_events
            event = error_event(self._family, reason, detail, first_event=first, last_events=last, said=said)
            if not stream.is_between_events:
                event = b"\n\n" + event  # a half too long to be held back was sent
            await self._reply.end_with(event)
            self._account(last)
        self._watch.stop()

    def release(self, now: float) -> None:
        """The request is over in every respect: give back what it held of its tenant's limits; charge its tokens."""
        if self._ticket is not None:
            self._ticket.close(tokens_of(self._record), now)

    async def _limited(self, over: Over) -> None:
        self._record.over = over.what
        meters = self._proxy.tenancy.admission.meters(self._grant, self._record.started_at)
        headers = [*retry_headers(over), *rate_limit_headers(meters, self._proxy.clock())]
        await self._refuse(
            EdgeReason.RATE_LIMITED, f"{over.what} of {over.scope}", is_body_unread=True, headers=headers
        )

    async def _refuse(
        self,
        reason: Reason,
        detail: str = "",
        param: str | None = None,
        *,
        is_body_unread: bool = False,
        headers: Sequence[Header] = (),
    ) -> None:
        headers = [(b"x-request-id", self._record.request_id.encode("ascii")), *headers]
        send = self._reply.send
        if is_body_unread or self._is_uploading:
            headers.append((b"connection", b"close"))
            send = self._send_and_linger
        self._record.refusal = reason.value
        self._record.status = await send_refusal(send, self._family, reason, detail, headers, param)
        self._watch.stop()

    async def _send_and_linger(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            self._connection.linger_after_response(EdgeReason(self._record.refusal))
        await self._reply.send(message)

    @property
    def _connection(self) -> Any:
        return self._scope["extensions"]["warmset"]["connection"]

    def _account(self, tail: bytes) -> None:
        record, stream = self._record, self._stream
        if stream is not None:
            record.events = stream.events
            record.gap_counts = stream.gap_counts
            record.gap_sum_s = stream.gap_sum_s
        usage = usage_of(tail)
        record.prompt_tokens, record.completion_tokens, record.cached_tokens = usage


def routing_headers(dispatches: Sequence[Dispatch]) -> list[Header]:
    """Who answered and why: of a batch that was cut up, a list in the order of its parts."""
    return [
        (b"x-warmset-worker", ", ".join(dispatch.worker.id for dispatch in dispatches).encode()),
        (b"x-warmset-policy", dispatches[0].policy.encode()),
        (b"x-warmset-reason", ", ".join(dispatch.reason.value for dispatch in dispatches).encode()),
    ]
