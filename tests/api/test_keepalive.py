"""Streams that are kept alive while their worker is silent: what the client gets, and what becomes of the rest."""

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable
from typing import Any

import openai
import pytest
from openai._streaming import SSEDecoder

from app.api.endpoints import ENDPOINTS
from app.api.keepalive import COMMENT
from app.core.fleet.exchange import UpstreamError
from app.core.fleet.reasons import Failure, Outcome
from app.core.fleet.tenant import KeySet, Limits
from tests.api.conftest import Edge, StartEdge, Talk
from tests.api.raw import dechunk
from tests.api.test_tenancy import grant
from tests.fakes.raw_worker import Connected, RawWorker
from tests.patience import PATIENCE_S

EVERY_S = 0.03

BODY = b'{"model": "m", "stream": true}'

STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"

FAMILIES = {"openai": b"/v1/chat/completions", "responses": b"/v1/responses", "anthropic": b"/v1/messages"}

EVENTS = (b": theirs\n\n", b'data: {"a', b'":1}\r\n\r\n', b"id: 7\nevent: x\ndata: y\n\n", b"data: [DONE]\n\n")


def post(
    body: bytes = BODY, path: bytes = b"/v1/chat/completions", version: bytes = b"1.1", more: bytes = b""
) -> bytes:
    head = b"POST %s HTTP/%s\r\nhost: g\r\n%scontent-length: %d\r\n\r\n"
    return head % (path, version, more, len(body)) + body


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


class Thinker:
    """A worker's script: takes a request, thinks until it may answer, answers, and is served no other."""

    def __init__(self, answer: bytes, *, head_first: bytes = b"", ends: bool = True) -> None:
        self._answer = answer
        self._head_first = head_first
        self._ends = ends
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.closed = asyncio.Event()

    async def __call__(self, connection: Connected) -> None:
        try:
            await connection.read_request()
            self.asked.set()
            await connection.send(self._head_first)
            answering = asyncio.ensure_future(self.may_answer.wait())
            leaving = asyncio.ensure_future(connection.reader.read(1))
            await asyncio.wait([answering, leaving], return_when=asyncio.FIRST_COMPLETED)
            answering.cancel()
            if not leaving.done():
                leaving.cancel()
                await asyncio.sleep(0)
                await connection.send(self._answer)
                if self._ends:
                    return
                await connection.until_closed()
        finally:
            self.closed.set()


async def comments(talk: Talk, number: int) -> bytes:
    """What came, until that many comments have."""
    return b"".join([await talk.until(COMMENT) for _ in range(number)])


def without_comments(body: bytes) -> tuple[int, bytes]:
    """How many comments of ours it begins with, and the rest."""
    number = 0
    while body.startswith(COMMENT):
        number += 1
        body = body.removeprefix(COMMENT)
    return number, body


def parse(body: bytes) -> list[tuple[str, str]]:
    """Events as the specification has them: (event, data). Data that no event follows is none."""
    read = []
    event = data = ""
    for line in body.decode().replace("\r\n", "\n").split("\n"):
        name, _, value = line.partition(":")
        if not line:
            if event or data:
                read.append((event, data))
            event = data = ""
        elif name == "event":
            event = value.strip()
        elif name == "data":
            data += value.strip()
    return read


@pytest.fixture
async def alive(start_edge: StartEdge) -> Edge:
    return await start_edge(sse_keepalive_s=EVERY_S)


async def test_a_silent_workers_stream_is_begun_here_and_then_passes_as_it_came(alive: Edge) -> None:
    think = Thinker(STREAM_HEAD + chunked(*EVENTS) + b"0\r\n\r\n", ends=False)
    async with RawWorker(think) as worker:
        alive.add(worker)
        talk = await alive.talk(post(more=b"connection: close\r\nx-request-id: mine\r\n"))
        raw = await comments(talk, 3)
        think.may_answer.set()
        head, body = (raw + await talk.rest()).split(b"\r\n\r\n", 1)
        lines = head.lower().split(b"\r\n")
        assert lines[0] == b"http/1.1 200 ok"
        for line in (
            b"content-type: text/event-stream; charset=utf-8",
            b"cache-control: no-cache",
            b"x-request-id: mine",
        ):
            assert lines.count(line) == 1
        number, rest = without_comments(dechunk(body))
        assert number >= 3
        assert rest == b"".join(EVENTS)
        await alive.at_rest()
        record = alive.told.records[0]
        assert (record.status, record.outcome, record.refusal) == (200, Outcome.SERVED, "")
        assert record.ttft_s is not None
        assert record.ttft_s > 2 * EVERY_S, "the first byte is the worker's, not a comment"
        assert alive.told.outcomes == [Outcome.SERVED]


async def test_a_client_of_http_1_0_gets_comments_without_chunks(alive: Edge) -> None:
    think = Thinker(STREAM_HEAD + chunked(*EVENTS) + b"0\r\n\r\n")
    async with RawWorker(think) as worker:
        alive.add(worker)
        talk = await alive.talk(post(version=b"1.0"))
        raw = await talk.until(COMMENT)
        think.may_answer.set()
        head, body = (raw + await talk.rest()).split(b"\r\n\r\n", 1)
        assert b"transfer-encoding" not in head
        assert without_comments(body)[1] == b"".join(EVENTS)
        await alive.at_rest()


async def test_a_worker_that_sends_its_head_at_once_and_thinks_then(alive: Edge) -> None:
    """As vLLM does: its head is passed on, so nothing of it is lost."""
    theirs = STREAM_HEAD.replace(b"\r\n\r\n", b"\r\nx-theirs: 1\r\n\r\n")
    think = Thinker(chunked(*EVENTS) + b"0\r\n\r\n", head_first=theirs, ends=False)
    async with RawWorker(think) as worker:
        alive.add(worker)
        talk = await alive.talk(post(more=b"connection: close\r\n"))
        raw = await comments(talk, 2)
        think.may_answer.set()
        head, body = (raw + await talk.rest()).split(b"\r\n\r\n", 1)
        assert b"\r\nx-theirs: 1" in head
        assert b"\r\nx-warmset-worker: " in head
        assert without_comments(dechunk(body))[1] == b"".join(EVENTS)


async def test_after_the_first_byte_of_the_worker_there_are_no_more_comments(alive: Edge) -> None:
    async def slow(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(STREAM_HEAD)
        for piece in (b"data: ha", b"lf\n\n", b"data: 2\n\n"):
            await connection.send(chunked(piece))
            await asyncio.sleep(5 * EVERY_S)
        await connection.send(b"0\r\n\r\n")

    async with RawWorker(slow) as worker:
        alive.add(worker)
        raw = await (await alive.talk(post(more=b"connection: close\r\n"))).rest()
        assert dechunk(raw.split(b"\r\n\r\n", 1)[1]) == b"data: half\n\ndata: 2\n\n"


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 90\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\ncontent-length: 90\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 90\r\n\r\n",
    ],
    ids=["a length", "compressed", "json"],
)
async def test_where_a_comment_has_no_place_there_is_none(alive: Edge, head: bytes) -> None:
    body = b"data: 1\n\n" * 10  # a comment would fit into the length
    think = Thinker(body, head_first=head, ends=False)
    async with RawWorker(think) as worker:
        alive.add(worker)
        talk = await alive.talk(post(more=b"connection: close\r\n"))
        raw = await talk.until(b"\r\n\r\n")
        await asyncio.sleep(5 * EVERY_S)
        think.may_answer.set()
        assert await talk.rest() == body
        assert b"content-length: 90" in raw


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (b"/v1/chat/completions", b'{"model": "m"}'),
        (b"/v1/chat/completions", b'{"model": "m", "stream": false}'),
        (b"/v1/chat/completions", b'{"model": "m", "stream": "true"}'),
        (b"/v1/embeddings", BODY),
    ],
)
async def test_who_asks_for_no_stream_gets_the_workers_status(alive: Edge, path: bytes, body: bytes) -> None:
    think = Thinker(b"HTTP/1.1 418 Odd\r\ncontent-length: 2\r\n\r\n{}")
    async with RawWorker(think) as worker:
        alive.add(worker)
        talk = await alive.talk(post(body, path, more=b"connection: close\r\n"))
        await asyncio.sleep(5 * EVERY_S)
        think.may_answer.set()
        assert (await talk.rest()).startswith(b"HTTP/1.1 418 ")


def test_the_endpoints_that_stream() -> None:
    streaming = [endpoint.path for endpoint in ENDPOINTS if endpoint.can_stream]
    assert streaming == ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"]


ANSWERS = {
    "stream": STREAM_HEAD + chunked(*EVENTS) + b"0\r\n\r\n",
    "error": b"HTTP/1.1 500 Oh\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
    "json": b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
}


@pytest.mark.parametrize("answer", ANSWERS)
async def test_off_and_a_worker_in_time_give_the_same_bytes(start_edge: StartEdge, answer: str) -> None:
    got = []
    for every_s, waits_s in ((0.0, 0.1), (5.0, 0.0), (5.0, 0.1)):
        edge = await start_edge(sse_keepalive_s=every_s)
        think = Thinker(ANSWERS[answer], ends=False)
        async with RawWorker(think) as worker:
            edge.add(worker)
            talk = await edge.talk(post(more=b"connection: close\r\n"))
            await asyncio.sleep(waits_s)
            think.may_answer.set()
            raw = await talk.rest()
            lines = raw.split(b"\r\n")
            name = worker.url.removeprefix("http://").encode()
            got.append([line.replace(name, b"W") for line in lines if not line.startswith(b"date: ")])
    assert got[0] == got[1] == got[2]
    theirs = ANSWERS[answer].split(b"\r\n\r\n", 1)
    assert got[0][0].split(b" ")[1] == theirs[0].split(b" ")[1], "the status is the worker's"
    body = b"\r\n".join(got[0]).split(b"\r\n\r\n", 1)[1]
    if answer == "stream":
        assert dechunk(body) == b"".join(EVENTS)
    else:
        assert body == b"{}"


# What the client is told when there is no stream after all


def told(family: str, body: bytes) -> str:
    """The message of the one error event, in the words of its family."""
    number, rest = without_comments(body)
    assert number >= 1
    assert b"[DONE]" not in rest
    [(name, data)] = parse(rest)
    event = json.loads(data)
    if family == "openai":
        assert name == ""
        assert list(event) == ["error"]
        assert list(event["error"]) == ["message", "type", "param", "code"]
        message = event["error"]["message"]
    elif family == "anthropic":
        assert name == event["type"] == "error"
        message = event["error"]["message"]
    else:
        assert name == event["type"] == "response.failed"
        assert event["sequence_number"] == 0
        assert event["response"]["status"] == "failed"
        message = event["response"]["error"]["message"]
    assert isinstance(message, str)
    return message


async def fails(edge: Edge, think: Thinker, family: str, asked: int = 1) -> bytes:
    """The whole body that a client gets, from the first comment to the close of its connection.

    asked: how many workers get the request.
    """
    async with RawWorker(think) as one, RawWorker(think) as other:
        edge.add(one)
        edge.add(other)
        talk = await edge.talk(post(path=FAMILIES[family]))
        raw = await talk.until(COMMENT)
        think.may_answer.set()
        raw += await talk.rest()
        await edge.at_rest()
        assert len(one.requests + other.requests) == asked
        assert max(len(one.requests), len(other.requests)) == 1, "nobody is asked twice"
    head, body = raw.split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 200 ")
    return dechunk(body)


def error(status: int, body: bytes, kind: bytes = b"application/json", length: int | None = None) -> bytes:
    head = b"HTTP/1.1 %d Error\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n"
    return head % (status, kind, len(body) if length is None else length) + body


VLLM = b'{"error":{"message":"too \\n \\"long\\"","type":"BadRequestError","param":"messages","code":400}}'


@pytest.mark.parametrize(
    ("answer", "code", "status", "text"),
    [
        (error(400, VLLM), "worker_error", 400, '(status 400: too \n "long")'),
        (error(503, b'{"detail":"busy"}'), "worker_error", 503, "(status 503: busy)"),
        (error(503, b"Service Unavailable", b"text/plain"), "worker_error", 503, "(status 503)"),
        (error(500, b"Internal Server Error", b"text/plain"), "worker_error", 500, "(status 500)"),
        (error(500, b"x" * 300_000), "worker_error", 500, "(status 500)"),
        (error(502, b'{"message":"cut', length=100), "worker_error", 502, "(status 502)"),
        (error(500, b"data: 1\n\n", b"text/event-stream"), "worker_error", 500, "(status 500)"),
        (error(200, b'{"choices":[]}'), "worker_not_a_stream", 502, "(status 200)"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "worker_not_a_stream", 502, "(status 204)"),
        (error(307, b""), "worker_not_a_stream", 502, "(status 307)"),
        (
            STREAM_HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n")
            + chunked(gzip.compress(b"data: 1")),
            "worker_not_a_stream",
            502,
            "(status 200)",
        ),
        (b"", "worker_no_answer", 502, "connection closed"),
        (b"nonsense\r\n\r\n", "worker_no_answer", 502, "malformed answer"),
    ],
    ids=[
        "vllm",
        "full",
        "proxy",
        "text",
        "large",
        "cut",
        "stream",
        "json",
        "204",
        "307",
        "gzip",
        "closed",
        "malformed",
    ],
)
@pytest.mark.parametrize("family", FAMILIES)
async def test_the_client_is_told_in_one_event(
    alive: Edge, family: str, answer: bytes, code: str, status: int, text: str
) -> None:
    # What only says that its worker takes no more is asked of the other one too; the last word is the client's.
    asked = 2 if b"busy" in answer else 1
    body = await fails(alive, Thinker(answer), family, asked)
    message = told(family, body)
    assert text in message
    [(_, data)] = parse(without_comments(body)[1])
    if family == "openai":
        event = json.loads(data)["error"]
        assert event["code"] == code
        kind = "BadRequestError" if answer == error(400, VLLM) else "server_error"
        assert (event["type"], event["param"]) == (kind, "messages" if kind == "BadRequestError" else None)
    elif family == "anthropic":
        kinds = {400: "invalid_request_error", 503: "overloaded_error"}
        assert json.loads(data)["error"]["type"] == kinds.get(status, "api_error")
    record = alive.told.records[0]
    assert (record.status, record.outcome, record.refusal) == (200, Outcome.FAILED, code)
    assert Outcome.SERVED not in alive.told.outcomes


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (Failure.CONNECT, "workers_unreachable"),
        (Failure.NO_ANSWER, "worker_no_answer"),
        (Failure.TIMEOUT, "request_timeout"),
    ],
)
async def test_refusals_of_the_gateway_are_told_too(
    alive: Edge, family: str, failure: Failure, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = asyncio.Event()

    async def send(worker: Any, call: Any) -> Any:
        await go_on.wait()
        raise UpstreamError(failure, "as it was told")

    monkeypatch.setattr(alive.upstream, "send", send)
    async with RawWorker() as worker:
        alive.add(worker)
        talk = await alive.talk(post(path=FAMILIES[family]))
        raw = await talk.until(COMMENT)
        go_on.set()
        raw += await talk.rest()
        assert "as it was told" in told(family, dechunk(raw.split(b"\r\n\r\n", 1)[1]))
        await alive.at_rest()
        record = alive.told.records[0]
        assert (record.status, record.outcome, record.refusal) == (200, Outcome.FAILED, code)


async def test_a_worker_that_never_answers_is_a_timeout(start_edge: StartEdge) -> None:
    edge = await start_edge(sse_keepalive_s=EVERY_S, first_byte_s=0.3)
    think = Thinker(b"")
    async with RawWorker(think) as worker:
        edge.add(worker)
        raw = await (await edge.talk(post())).rest()
        assert "no answer began within 0.3 s" in told("openai", dechunk(raw.split(b"\r\n\r\n", 1)[1]))
        await edge.at_rest()
        await asyncio.wait_for(think.closed.wait(), PATIENCE_S)
        assert edge.told.records[0].refusal == "request_timeout"


@pytest.mark.parametrize("sent", [(), EVENTS[:2], EVENTS[:4]], ids=["nothing", "half an event", "events"])
async def test_a_worker_that_breaks_after_its_head(alive: Edge, sent: tuple[bytes, ...]) -> None:
    async def script(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(STREAM_HEAD)
        await asyncio.sleep(3 * EVERY_S)
        await connection.send(chunked(*sent))
        await asyncio.sleep(0.01)
        connection.reset()

    async with RawWorker(script) as worker:
        alive.add(worker)
        raw = await (await alive.talk(post())).rest()
        number, body = without_comments(dechunk(raw.split(b"\r\n\r\n", 1)[1]))
        assert number >= 1
        whole = b"".join(sent) if len(sent) > 2 else sent[0] if sent else b""
        assert body.startswith(whole + b'data: {"error"')
        assert body.count(b"worker_stream_broken") == 1
        await alive.at_rest()
        assert alive.told.records[0].refusal == "stream_broken"


# Leaving and shutting down


def keep_alives(edge: Edge) -> int:
    return sum(task.get_name() == "keep-alive" for task in edge.tasks._running)


@pytest.mark.parametrize("is_head_first", [True, False])
@pytest.mark.parametrize("is_after_comment", [True, False])
async def test_a_client_that_leaves_frees_the_worker(alive: Edge, is_after_comment: bool, is_head_first: bool) -> None:
    think = Thinker(b"", head_first=STREAM_HEAD if is_head_first else b"")
    async with RawWorker(think) as worker:
        alive.add(worker)
        talk = await alive.talk(post())
        if is_after_comment:
            await talk.until(COMMENT)
        else:
            await asyncio.wait_for(think.asked.wait(), PATIENCE_S)
        assert alive.router.open_requests == 1
        talk.leave()
        await asyncio.wait_for(think.closed.wait(), PATIENCE_S)
        await alive.at_rest()
        await asyncio.sleep(0.01)
        assert keep_alives(alive) == 0
        record = alive.told.records[0]
        assert (record.outcome, record.refusal) == (Outcome.CLIENT_GONE, "")
        if is_after_comment:
            assert record.status == 200


async def test_a_client_that_leaves_while_an_error_is_read(alive: Edge) -> None:
    think = Thinker(error(500, b"{", length=100), ends=False)
    async with RawWorker(think) as worker:
        alive.add(worker)
        talk = await alive.talk(post())
        await talk.until(COMMENT)
        think.may_answer.set()
        for _ in range(3):
            await talk.until(COMMENT)  # the rest of the error may take its time
        talk.leave()
        await asyncio.wait_for(think.closed.wait(), PATIENCE_S)
        await alive.at_rest()
        assert alive.told.records[0].outcome is Outcome.CLIENT_GONE


@pytest.mark.parametrize("family", FAMILIES)
async def test_shutdown_is_told(alive: Edge, family: str) -> None:
    think = Thinker(b"")
    async with RawWorker(think) as worker:
        alive.add(worker)
        talk = await alive.talk(post(path=FAMILIES[family]))
        raw = await talk.until(COMMENT)
        cut_now = asyncio.get_running_loop().create_future()
        cut_now.set_result(None)
        stopping = asyncio.ensure_future(alive.listener.stop(alive.serving, 60.0, cut_now))
        raw += await talk.rest()
        assert "shutting down" in told(family, dechunk(raw.split(b"\r\n\r\n", 1)[1]))
        await asyncio.wait_for(stopping, PATIENCE_S)
        await alive.at_rest()
        record = alive.told.records[0]
        assert (record.status, record.outcome, record.refusal) == (200, Outcome.FAILED, "shutting_down")


async def test_what_is_left_of_the_limits_stands_in_the_head(start_edge: StartEdge) -> None:
    key_set = KeySet([grant("k")], {"acme": Limits(requests_per_minute=60)})
    edge = await start_edge(sse_keepalive_s=EVERY_S, key_set=key_set)
    async with RawWorker(Thinker(b"")) as worker:
        edge.add(worker)
        talk = await edge.talk(post(more=b"authorization: Bearer k\r\n"))
        assert b"\r\nx-ratelimit-limit-requests: 60\r\n" in await talk.until(COMMENT)
        talk.leave()
        await edge.at_rest()


# The official SDK


def chat_event(text: str, **more: Any) -> bytes:
    choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more}
    return b"id: 7\ndata: " + json.dumps(chunk).encode() + b"\n\n"


async def through_sdk(edge: Edge, think: Thinker, ask: Callable[[openai.AsyncOpenAI], Awaitable[Any]]) -> list[Any]:
    """What the SDK makes of the stream. The worker may answer once the SDK has the head, which then is ours."""
    async with RawWorker(think) as worker:
        edge.add(worker)
        async with openai.AsyncOpenAI(
            base_url=edge.url + "/v1", api_key="k", max_retries=0, timeout=PATIENCE_S
        ) as client:
            raw = await ask(client)
            assert raw.headers["cache-control"] == "no-cache"
            await asyncio.sleep(3 * EVERY_S)
            think.may_answer.set()
            return [event async for event in raw.parse()]


def ask_chat(client: openai.AsyncOpenAI) -> Awaitable[Any]:
    messages: Any = [{"role": "user", "content": "x"}]
    return client.chat.completions.with_raw_response.create(model="m", messages=messages, stream=True)


@pytest.mark.parametrize(("comment", "number"), [(COMMENT, 2), (b": ping\n\n", 5)], ids=["ours", "with a blank line"])
def test_why_a_comment_of_ours_has_no_blank_line(comment: bytes, number: int) -> None:
    """After an event with an id, the SDK makes an event of every blank line."""
    stream = chat_event("a") + comment * 3 + chat_event("b")
    assert len(list(SSEDecoder().iter_bytes(iter([stream])))) == number
    assert COMMENT == b": keep-alive\n"


async def test_the_sdk_sees_the_workers_chunks_and_no_other(alive: Edge) -> None:
    events = [chat_event("a"), chat_event("b"), b"data: [DONE]\n\n"]
    chunks = await through_sdk(alive, Thinker(STREAM_HEAD + chunked(*events) + b"0\r\n\r\n", ends=False), ask_chat)
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["a", "b"]
    await alive.at_rest()


async def test_the_sdk_raises_what_the_worker_said(alive: Edge) -> None:
    with pytest.raises(openai.APIError, match='too \n "long"') as raised:
        await through_sdk(alive, Thinker(error(400, VLLM)), ask_chat)
    assert (raised.value.type, raised.value.code, raised.value.param) == ("BadRequestError", "worker_error", "messages")


async def test_the_sdk_reads_responses_and_their_failure(alive: Edge) -> None:
    def ask(client: openai.AsyncOpenAI) -> Awaitable[Any]:
        return client.responses.with_raw_response.create(model="m", input="x", stream=True)

    [event] = await through_sdk(alive, Thinker(error(400, VLLM)), ask)
    assert event.type == "response.failed"
    assert 'too \n "long"' in event.response.error.message
