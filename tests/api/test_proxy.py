"""The whole data path over real sockets: bytes, failures, clients that leave."""

import asyncio
import gzip
import json
from dataclasses import replace

import httpx
import pytest

from app.api.errors import EdgeReason
from app.core.fleet.reasons import Failure, Outcome
from tests.api.conftest import PATIENT, Edge, StartEdge
from tests.api.raw import dechunk
from tests.fakes.raw_worker import Connected, RawWorker
from tests.patience import FOR_EVER_S, eventually, soon, undisturbed

BODY = b'{"model": "m", "z": 12345678901234567890123,  "a": "\\u00e9 \xc3\xa9", "unknown": [1.0, {}]}'

STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"


def post(body: bytes = BODY, path: bytes = b"/v1/chat/completions", headers: bytes = b"") -> bytes:
    head = b"POST %s HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n%scontent-length: %d\r\n\r\n"
    return head % (path, headers, len(body)) + body


def stream(*pieces: bytes, end: str = "whole", pause_s: float = 0.002):  # type: ignore[no-untyped-def]
    """A script that answers with an event stream, one chunk per piece.

    end: "whole", or in the middle of it: "close", as of a process that is gone, before which all arrives, or "reset",
    which may overtake what was sent.
    """

    async def script(connection: Connected) -> None:
        while True:
            await connection.read_request()
            await connection.send(STREAM_HEAD)
            for piece in pieces:
                await connection.send(b"%x\r\n%s\r\n" % (len(piece), piece))
                await asyncio.sleep(pause_s)
            if end == "reset":
                connection.reset()
            if end != "whole":
                return
            await connection.send(b"0\r\n\r\n")

    return script


def events(number: int) -> list[bytes]:
    return [b'data: {"n": %d}\n\n' % place for place in range(number)]


async def test_bytes_in_are_bytes_out(edge: Edge) -> None:
    async with RawWorker() as worker:
        edge.add(worker)
        async with httpx.AsyncClient() as client:
            answer = await client.post(edge.url + "/v1/chat/completions?x=%2F&y", content=BODY)
        assert answer.status_code == 200
        assert answer.content == b"{}"
        head, body = worker.requests[0]
        assert body == BODY
        assert head.startswith(b"POST /v1/chat/completions?x=%2F&y HTTP/1.1\r\n")
        assert answer.headers["x-warmset-worker"] == worker.url.removeprefix("http://")
        assert answer.headers["x-warmset-policy"] == "round_robin"
        await edge.at_rest()
        assert edge.told.records[0].outcome is Outcome.SERVED


async def test_what_reaches_the_worker_of_the_clients_headers(edge: Edge) -> None:
    async with RawWorker() as worker:
        edge.add(worker)
        async with httpx.AsyncClient() as client:
            await client.post(
                edge.url + "/v1/completions",
                content=BODY,
                headers={
                    "Authorization": "Bearer user-key",
                    "X-Api-Key": "user-key",
                    "Cookie": "session=1",
                    "Connection": "keep-alive, x-mine",
                    "X-Mine": "1",
                    "X-Forwarded-For": "10.0.0.1",
                    "X-Warmset-Key": "k",
                    "Traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                    "X-Request-Id": "mine-1",
                    "X-Vendor": "kept",
                },
            )
        lines = worker.requests[0][0].lower().split(b"\r\n")
        names = [line.split(b":")[0] for line in lines[1:] if line]
        assert b"authorization: bearer worker-key" in lines
        assert not any(b"user-key" in line for line in lines)
        for absent in (b"cookie", b"x-api-key", b"connection", b"x-mine", b"x-forwarded-for", b"x-warmset-key"):
            assert absent not in names
        assert b"x-vendor: kept" in lines
        assert b"x-request-id: mine-1" in lines
        assert b"accept-encoding: identity" in lines
        assert any(line.startswith(b"traceparent: 00-") for line in lines)
        assert names.count(b"host") == names.count(b"content-length") == 1
        assert b"host: %s" % worker.url.removeprefix("http://").encode() in lines


@pytest.mark.parametrize("given", ["a b", "x" * 129, "", "ünï"])
async def test_an_id_that_is_not_sane_is_replaced(edge: Edge, given: str) -> None:
    async with RawWorker() as worker:
        edge.add(worker)
        talk = await edge.talk(post(headers=b"x-request-id: %s\r\nconnection: close\r\n" % given.encode()))
        head = (await talk.rest()).split(b"\r\n\r\n")[0]
        assert b"\r\nx-request-id: made-1" in head
        assert b"\r\nx-request-id: made-1" in worker.requests[0][0]
        talk.leave()


async def test_answers_headers_pass_but_for_the_workers_own(edge: Edge) -> None:
    async def script(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(
            b"HTTP/1.1 429 Too Many Requests\r\nserver: uvicorn\r\nset-cookie: a=b\r\nretry-after: 7\r\n"
            b"x-request-id: theirs\r\ncontent-type: application/json\r\nmetadata: {}\r\ncontent-length: 2\r\n\r\n{}"
        )

    async with RawWorker(script) as worker:
        edge.add(worker)
        async with httpx.AsyncClient() as client:
            answer = await client.post(edge.url + "/v1/completions", content=BODY, headers={"x-request-id": "mine"})
        assert answer.status_code == 429
        assert answer.headers["retry-after"] == "7"
        assert answer.headers["metadata"] == "{}"
        assert answer.headers["x-request-id"] == "mine"
        assert "server" not in answer.headers
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("status", [301, 302, 307, 308, 201])
async def test_a_worker_does_not_say_where_a_client_goes_next(edge: Edge, status: int) -> None:
    async with RawWorker() as elsewhere:

        async def script(connection: Connected) -> None:
            await connection.read_request()
            place = f"{elsewhere.url}/v1/completions".encode()
            await connection.send(
                b"HTTP/1.1 %d X\r\nlocation: %s\r\ncontent-location: %s\r\nrefresh: 0;url=%s\r\n"
                b"content-type: application/json\r\ncontent-length: 2\r\n\r\n{}" % (status, place, place, place)
            )

        async with RawWorker(script) as worker:
            edge.add(worker)
            # As SDKs do; a 307 would have them send the prompt again, to wherever it says.
            async with httpx.AsyncClient(follow_redirects=True) as client:
                answer = await client.post(edge.url + "/v1/completions", content=BODY)
        assert (answer.status_code, answer.content) == (status, b"{}")
        assert not {"location", "content-location", "refresh"} & set(answer.headers)
        assert not elsewhere.connections


async def test_a_stream_passes_as_it_came(edge: Edge) -> None:
    pieces = [b": comment\n\n", b'data: {"a', b'":1}\r\n\r\n', b"id: 7\nevent: x\ndata: y\n\n", b"data: [DONE]\n\n"]
    async with RawWorker(stream(*pieces)) as worker:
        edge.add(worker)
        async with httpx.AsyncClient() as client:
            answer = await client.post(edge.url + "/v1/chat/completions", content=BODY)
        assert answer.content == b"".join(pieces)
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        await edge.at_rest()
        assert edge.told.records[0].events >= 4
        assert edge.told.records[0].ttft_s is not None


async def test_a_stream_that_ends_inside_an_event_by_itself_is_not_ours_to_mend(edge: Edge) -> None:
    pieces = [*events(2), b"data: the last one has no blank line"]
    async with RawWorker(stream(*pieces)) as worker:
        edge.add(worker)
        async with httpx.AsyncClient() as client:
            answer = await client.post(edge.url + "/v1/chat/completions", content=BODY)
        assert answer.content == b"".join(pieces)


async def test_what_has_no_end_of_an_event_is_not_held_for_ever(edge: Edge) -> None:
    pieces = [b"x" * 30_000] * 8
    async with RawWorker(stream(*pieces, end="close")) as worker:
        edge.add(worker)
        body = dechunk((await (await edge.talk(post())).rest()).split(b"\r\n\r\n", 1)[1])
        assert body.count(b"x") > 180_000
        assert b'\n\ndata: {"error"' in body


async def test_a_comment_alone_passes_at_once(edge: Edge) -> None:
    go_on = asyncio.Event()

    async def ping(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(STREAM_HEAD + b"8\r\n: ping\n\n\r\n7\r\n: ping\n\r\n")
        await go_on.wait()
        await connection.send(b"9\r\ndata: 1\n\n\r\n0\r\n\r\n")

    async with RawWorker(ping) as worker:
        edge.add(worker)
        talk = await edge.talk(post())
        await talk.until(b": ping\n\n")
        await talk.until(b": ping\n")
        go_on.set()
        await talk.until(b"data: 1\n\n")


async def test_a_client_of_http_1_0_gets_no_chunks(edge: Edge) -> None:
    async with RawWorker(stream(*events(3))) as worker:
        edge.add(worker)
        talk = await edge.talk(post().replace(b"HTTP/1.1", b"HTTP/1.0"))
        head, body = (await talk.rest()).split(b"\r\n\r\n", 1)
        assert b"transfer-encoding" not in head
        assert body == b"".join(events(3))
        await edge.at_rest()
        assert edge.told.records[0].outcome is Outcome.SERVED


async def test_a_status_that_http_does_not_know_is_no_answer(edge: Edge) -> None:
    async def odd(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(b"HTTP/1.1 999 Odd\r\ncontent-length: 0\r\n\r\n")

    async with RawWorker(odd) as worker:
        edge.add(worker)
        async with httpx.AsyncClient() as client:
            answer = await client.post(edge.url + "/v1/completions", content=BODY)
        assert answer.status_code == 502
        assert "status 999" in answer.json()["error"]["message"]
        record = edge.told.records[0]
        assert (record.model, record.status) == ("m", 502), "a model that exists keeps its name in metrics"


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
async def test_an_answer_without_a_body_passes_without_a_length(edge: Edge, status: bytes) -> None:
    async def script(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(b"HTTP/1.1 %s\r\ncontent-length: 5\r\n\r\n" % status)

    async with RawWorker(script) as worker:
        edge.add(worker)
        raw = await (await edge.talk(post(headers=b"connection: close\r\n"))).rest()
        assert raw.startswith(b"HTTP/1.1 " + status[:3])
        assert b"content-length" not in raw
        assert b"transfer-encoding" not in raw
        await edge.at_rest()
        assert edge.told.records[0].outcome is Outcome.SERVED


async def test_what_a_worker_compressed_all_the_same_passes_as_it_came(edge: Edge) -> None:
    packed = gzip.compress(b'data: {"n": 1}\n\ndata: [DONE]\n\n')

    async def script(connection: Connected) -> None:
        await connection.read_request()
        head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-type: text/event-stream\r\n"
        await connection.send(head + b"transfer-encoding: chunked\r\n\r\n")
        for byte in packed:
            await connection.send(b"1\r\n%c\r\n" % byte)
        await connection.send(b"0\r\n\r\n")

    async with RawWorker(script) as worker:
        edge.add(worker)
        head, body = (await (await edge.talk(post(headers=b"connection: close\r\n"))).rest()).split(b"\r\n\r\n", 1)
        assert b"content-encoding: gzip" in head
        assert dechunk(body) == packed


async def test_headers_of_a_megabyte_pass(edge: Edge) -> None:
    async def script(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(b"HTTP/1.1 200 OK\r\nmetadata: %s\r\ncontent-length: 2\r\n\r\nok" % (b"m" * 1_000_000))

    async with RawWorker(script) as worker:
        edge.add(worker)
        raw = await (await edge.talk(post(headers=b"connection: close\r\n"))).rest()
        assert b"metadata: %s\r\n" % (b"m" * 1_000_000) in raw
        assert raw.endswith(b"ok")


async def test_bodies_together_are_bounded_until_their_workers_answer(start_edge: StartEdge) -> None:
    edge = await start_edge(max_held_bytes=100_000)
    body = b'{"model": "m", "x": "%s"}' % (b"x" * 60_000)
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def streams(connection: Connected) -> None:
        await connection.read_request()
        asked.set()
        await go_on.wait()
        await connection.send(STREAM_HEAD + b"9\r\ndata: 1\n\n\r\n")
        await connection.until_closed()

    async with RawWorker(streams) as worker:
        edge.add(worker)
        first = await edge.talk(post(body))
        await soon(asked.wait())
        raw = await (await edge.talk(post(body))).rest()
        assert raw.startswith(b"HTTP/1.1 503 ")
        assert b'"code":"overloaded"' in raw
        assert b"retry-after: 1" in raw
        go_on.set()
        await first.until(b"data: 1\n\n")
        assert edge.proxy.held.size == 0, "the stream goes on, and its prompt is not kept for it"
        again = await edge.talk(post(body))
        await again.until(b"data: 1\n\n")
        for talk in (first, again):
            talk.leave()
        await edge.at_rest()
        assert edge.proxy.held.size == 0


async def test_usage_is_read_as_it_goes_by(edge: Edge) -> None:
    usage = (
        b'data: {"choices":[],"usage":{"prompt_tokens":7,"total_tokens":9,"completion_tokens":2,'
        b'"prompt_tokens_details":{"cached_tokens":4}}}\n\n'
    )
    async with RawWorker(stream(*events(3), usage, b"data: [DONE]\n\n")) as worker:
        edge.add(worker)
        async with httpx.AsyncClient() as client:
            await client.post(edge.url + "/v1/chat/completions", content=BODY)
        await edge.at_rest()
        record = edge.told.records[0]
        assert (record.prompt_tokens, record.completion_tokens, record.cached_tokens) == (7, 2, 4)
        assert sum(record.gap_counts) == record.events - 1


async def test_a_model_alias_changes_one_value_and_nothing_else(start_edge: StartEdge) -> None:
    edge = await start_edge(aliases={"gpt-4": "m"})
    async with RawWorker() as worker:
        edge.add(worker)
        async with httpx.AsyncClient() as client:
            body = b'{ "a":{"model":"gpt-4"}, "mod\\u0065l" : "gpt-4" ,"x":1e2}'
            assert (await client.post(edge.url + "/v1/completions", content=body)).status_code == 200
            models = (await client.get(edge.url + "/v1/models")).json()["data"]
            one = (await client.get(edge.url + "/v1/models/gpt-4")).json()
        assert worker.requests[0][1] == b'{ "a":{"model":"gpt-4"}, "mod\\u0065l" : "m" ,"x":1e2}'
        assert [model["id"] for model in models] == ["m", "gpt-4"]
        assert one["id"] == "gpt-4"
        assert one["parent"] == "m"


async def test_the_next_worker_gets_what_the_first_refuses(edge: Edge) -> None:
    async with RawWorker() as dead, RawWorker() as alive:
        edge.add(dead)
        edge.add(alive)
        assert dead._server is not None
        dead._server.close()
        async with httpx.AsyncClient() as client:
            for _ in range(4):
                answer = await client.post(edge.url + "/v1/completions", content=BODY)
                assert answer.status_code == 200
        assert len(alive.requests) == 4
        assert Failure.CONNECT in edge.told.failures
        await edge.at_rest()


async def test_every_worker_gone_is_503_with_retry_after(edge: Edge) -> None:
    async with RawWorker() as worker:
        edge.add(worker)
    async with httpx.AsyncClient() as client:
        answer = await client.post(edge.url + "/v1/completions", content=BODY)
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "workers_unreachable"
    assert int(answer.headers["retry-after"]) >= 1
    await edge.at_rest()


async def test_a_worker_that_closes_without_an_answer_is_502_and_asked_once(edge: Edge) -> None:
    async def close(connection: Connected) -> None:
        await connection.read_request()

    async with RawWorker(close) as worker, RawWorker() as other:
        edge.add(worker)
        edge.add(other)
        async with httpx.AsyncClient() as client:
            answers = [await client.post(edge.url + "/v1/completions", content=BODY) for _ in range(2)]
        assert sorted(answer.status_code for answer in answers) == [200, 502]
        assert len(worker.requests) == 1
        await edge.at_rest()


async def test_a_request_that_takes_too_long_is_504(start_edge: StartEdge) -> None:
    edge = await start_edge(request_timeout_s=0.1)

    async def silent(connection: Connected) -> None:
        await connection.until_closed()

    async with RawWorker(silent) as worker:
        edge.add(worker)
        async with httpx.AsyncClient() as client:
            answer = await client.post(edge.url + "/v1/completions", content=BODY)
        assert answer.status_code == 504
        assert answer.json()["error"]["code"] == "request_timeout"
        await edge.at_rest()


def parse(raw: bytes) -> list[tuple[str, str]]:
    """Events of a stream, as a client of the specification reads them: (event, data)."""
    read = []
    for block in raw.replace(b"\r\n", b"\n").split(b"\n\n"):
        fields: dict[str, str] = {}
        for line in block.decode().splitlines():
            name, _, value = line.partition(":")
            fields[name] = value.strip()
        if fields:
            read.append((fields.get("event", ""), fields.get("data", "")))
    return read


@pytest.mark.parametrize(
    "tail", [b"", b'data: {"par', b"data: x\n", b"data: x\r\n\r"], ids=["between", "inside", "line", "crlf"]
)
async def test_a_broken_chat_stream_ends_with_one_error_event(edge: Edge, tail: bytes) -> None:
    pieces = [*events(2), *([tail] if tail else [])]
    async with RawWorker(stream(*pieces, end="close")) as worker:
        edge.add(worker)
        talk = await edge.talk(post())
        raw = await talk.rest()
        body = dechunk(raw.split(b"\r\n\r\n", 1)[1])
        assert body.startswith(b"".join(events(2)) + b"data: "), "whole events are passed on, half of one is of no use"
        assert [json.loads(data) for _, data in parse(body)], "every event of the stream can be read"
        error = json.loads(parse(body)[-1][1])["error"]
        assert error["code"] == "worker_stream_broken"
        assert error["type"] == "server_error"
        assert body.count(b"worker_stream_broken") == 1
        assert b"[DONE]" not in body
        talk.leave()
        await edge.at_rest()
        assert edge.told.records[0].refusal == "stream_broken"
        assert edge.told.outcomes == [Outcome.BROKEN]


async def test_a_stream_that_was_reset_ends_with_the_same_error_event(edge: Edge) -> None:
    """Of what it overtook, whole events may be missing at the end; nothing else."""
    async with RawWorker(stream(*events(3), b'data: {"par', end="reset", pause_s=0.01)) as worker:
        edge.add(worker)
        talk = await edge.talk(post())
        head, body = (await talk.rest()).split(b"\r\n\r\n", 1)
        if head.startswith(b"HTTP/1.1 200 "):
            *passed, (_, last) = parse(dechunk(body))
            assert [data for _, data in passed] == [f'{{"n": {place}}}' for place in range(len(passed))]
            assert json.loads(last)["error"]["code"] == "worker_stream_broken"
        else:
            assert json.loads(body)["error"]["code"] == "worker_no_answer", "it overtook everything"
        await edge.at_rest()
        assert edge.told.outcomes in ([Outcome.BROKEN], [Outcome.FAILED])


async def test_a_broken_responses_stream_fails_in_its_own_words(edge: Edge) -> None:
    created = {"type": "response.created", "sequence_number": 0, "response": {"id": "resp_1", "status": "in_progress"}}
    delta = {"type": "response.output_text.delta", "sequence_number": 4, "delta": "x"}
    pieces = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in (created, delta)]
    async with RawWorker(stream(*pieces, end="close")) as worker:
        edge.add(worker)
        talk = await edge.talk(post(path=b"/v1/responses"))
        body = dechunk((await talk.rest()).split(b"\r\n\r\n", 1)[1])
        name, data = parse(body)[-1]
        failed = json.loads(data)
        assert name == failed["type"] == "response.failed"
        assert failed["sequence_number"] == 5
        assert failed["response"]["id"] == "resp_1"
        assert failed["response"]["status"] == "failed"
        assert failed["response"]["error"]["code"] == "server_error"
        talk.leave()


async def test_a_broken_messages_stream_fails_in_anthropics_words(edge: Edge) -> None:
    async with RawWorker(stream(b"event: message_start\ndata: {}\n\n", end="close")) as worker:
        edge.add(worker)
        talk = await edge.talk(post(path=b"/v1/messages"))
        name, data = parse(dechunk((await talk.rest()).split(b"\r\n\r\n", 1)[1]))[-1]
        assert name == "error"
        assert json.loads(data)["type"] == "error"
        assert json.loads(data)["error"]["type"] == "api_error"
        talk.leave()


async def test_a_broken_json_answer_breaks_the_connection(edge: Edge) -> None:
    async def short(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{")

    async with RawWorker(short) as worker:
        edge.add(worker)
        async with httpx.AsyncClient() as client:
            with pytest.raises(httpx.RemoteProtocolError):
                await client.post(edge.url + "/v1/completions", content=BODY)
        await edge.at_rest()


@pytest.mark.parametrize("when", ["body", "prefill", "stream"])
async def test_a_client_that_leaves_frees_the_worker(edge: Edge, when: str) -> None:
    closed = asyncio.Event()
    arrived = asyncio.Event()

    async def work(connection: Connected) -> None:
        try:
            await connection.read_request()
            arrived.set()
            if when == "stream":
                await connection.send(STREAM_HEAD)
                while True:
                    await connection.send(b"9\r\ndata: 1\n\n\r\n")
                    await asyncio.sleep(0.005)
            await connection.until_closed()
        finally:
            closed.set()

    async with RawWorker(work) as worker:
        edge.add(worker)
        talk = await edge.talk(post()[:-10] if when == "body" else post())
        if when == "body":
            await eventually(lambda: edge.proxy.held.size)
            talk.leave()
            await eventually(lambda: edge.told.records)
            assert not arrived.is_set()
        else:
            await soon(arrived.wait())
            assert edge.router.open_requests == 1
            if when == "stream":
                await talk.until(b"data: 1")
            talk.leave()
            await soon(closed.wait())
        await edge.at_rest()
        await eventually(lambda: edge.told.records)
        assert edge.told.records[0].outcome is Outcome.CLIENT_GONE


async def test_a_slow_client_holds_bounded_memory(edge: Edge) -> None:
    sent = 0

    async def flood(connection: Connected) -> None:
        nonlocal sent
        await connection.read_request()
        await connection.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        piece = b"data: " + b"x" * 65528 + b"\n\n"
        for _ in range(1600):
            await connection.send(piece)
            sent += len(piece)

    async with RawWorker(flood) as worker:
        edge.add(worker)
        talk = await edge.talk(post())
        await talk.until(b"data: ")
        await asyncio.sleep(0.5)
        assert sent < 32 * 1024 * 1024, "100 MiB would have gone through"
        talk.leave()
        await edge.at_rest()


async def test_a_client_that_reads_nothing_is_cut_and_a_slow_one_is_not(start_edge: StartEdge) -> None:
    async def flood(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(STREAM_HEAD)
        piece = b"data: " + b"x" * 65528 + b"\n\n"
        for _ in range(400):
            await connection.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        await connection.send(b"0\r\n\r\n")

    async def attempt(scale: float) -> None:
        refused: asyncio.Queue[EdgeReason] = asyncio.Queue()
        limits = replace(PATIENT, write_stall_s=0.3 * scale, on_refused=refused.put_nowait)
        edge = await start_edge(edge_limits=limits)
        async with RawWorker(flood) as worker:
            edge.add(worker)
            slow = await edge.talk(post(), receive_buffer=32 * 1024)
            read = 0
            while read < 3_000_000:
                read += len(await slow.reader.read(65536))
                await asyncio.sleep(0.02 * scale)
            assert refused.empty(), "it reads, if slowly"
            slow.leave()
            await edge.at_rest()
            stuck = await edge.talk(post())
            stuck.writer.transport.pause_reading()  # type: ignore[attr-defined]
            assert await soon(refused.get()) is EdgeReason.WRITE_STALL
            await edge.at_rest()

    await undisturbed(attempt, pause_s=0.05)


async def test_shutdown_lets_streams_end(edge: Edge) -> None:
    async with RawWorker(stream(*events(20), b"data: [DONE]\n\n", pause_s=0.01)) as worker:
        edge.add(worker)
        talk = await edge.talk(post())
        await talk.until(b"data: ")
        cut_now = asyncio.get_running_loop().create_future()
        stopping = asyncio.ensure_future(edge.listener.stop(edge.serving, FOR_EVER_S, cut_now))
        assert b"[DONE]" in await talk.rest()
        await soon(stopping)
        with pytest.raises(OSError, match="Connect"):
            await edge.talk(post())
        talk.leave()


@pytest.mark.parametrize("is_streaming", [True, False])
async def test_shutdown_cuts_short_with_a_word(edge: Edge, is_streaming: bool) -> None:
    asked = asyncio.Event()

    async def never_ends(connection: Connected) -> None:
        await connection.read_request()
        asked.set()
        if is_streaming:
            await connection.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n")
        await connection.until_closed()

    async with RawWorker(never_ends) as worker:
        edge.add(worker)
        talk = await edge.talk(post())
        await soon(asked.wait())
        if is_streaming:
            await talk.until(b"data: 1")
        cut_now = asyncio.get_running_loop().create_future()
        stopping = asyncio.ensure_future(edge.listener.stop(edge.serving, FOR_EVER_S, cut_now))
        await asyncio.sleep(0.05)
        cut_now.set_result(None)
        raw = await talk.rest()
        assert b'"code":"shutting_down"' in raw
        if not is_streaming:
            assert raw.startswith(b"HTTP/1.1 503 ")
        await soon(stopping)
        await edge.at_rest()
        talk.leave()
