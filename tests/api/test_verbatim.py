"""What a worker answers passes as it came, whatever others lose, decode or mend of it; and so does what it is asked."""

import asyncio
import gzip
import json
import zlib

import httpx
import openai
import pytest

from app.api.endpoints import ENDPOINTS
from app.config.schema import Config
from app.core.fleet.reasons import Outcome
from tests.api.conftest import Edge, StartEdge
from tests.api.raw import BODY, LAST_CHUNK, STREAM_HEAD, answer, body_of, chunk, headers_of, post, status_of
from tests.fakes.raw_worker import Connected, RawWorker
from tests.patience import PATIENCE_S
from tests.telemetry.test_metrics import metrics_of, samples


class Say:
    """A script that answers each request with these pieces, one packet each; others may be put there in between."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces

    async def __call__(self, connection: Connected) -> None:
        while True:
            await connection.read_request()
            for piece in self.pieces:
                await connection.send(piece)
                await asyncio.sleep(0)


async def ask(edge: Edge, data: bytes) -> bytes:
    talk = await edge.talk(data)
    return await talk.rest()


# Answers


async def test_compressed_json_keeps_its_bytes_its_length_and_its_encoding(edge: Edge) -> None:
    packed = gzip.compress(b'{"usage": {"prompt_tokens": 3}}')
    headers = (b"content-type: application/json", b"content-encoding: gzip")
    async with RawWorker(Say(answer(packed, *headers))) as worker:
        edge.add(worker)
        raw = await ask(edge, post())
        found = headers_of(raw)
        assert body_of(raw) == packed
        assert (found[b"content-encoding"], found[b"content-length"]) == (b"gzip", b"%d" % len(packed))
        async with httpx.AsyncClient() as client:
            assert (await client.post(edge.url + "/v1/completions", content=BODY)).json()["usage"]
        assert headers_of(worker.requests[0][0])[b"accept-encoding"] == b"identity", "it was not asked for"


async def test_a_compressed_stream_passes_event_by_event(edge: Edge) -> None:
    was_read = asyncio.Event()

    async def script(connection: Connected) -> None:
        await connection.read_request()
        packer = zlib.compressobj(wbits=31)
        await connection.send(STREAM_HEAD.replace(b"content-type", b"content-encoding: gzip\r\ncontent-type"))
        for place in range(3):
            was_read.clear()
            packed = packer.compress(b"data: %d\n\n" % place) + packer.flush(zlib.Z_SYNC_FLUSH)
            await connection.send(chunk(packed))
            await was_read.wait()
        await connection.send(chunk(packer.flush()) + LAST_CHUNK)

    async with RawWorker(script) as worker:
        edge.add(worker)
        read = ""
        async with (
            asyncio.timeout(PATIENCE_S),
            httpx.AsyncClient() as client,
            client.stream("POST", edge.url + "/v1/completions", content=BODY) as answered,
        ):
            async for text in answered.aiter_text():
                read += text
                was_read.set()  # the next one comes only when this one has arrived
        assert read == "data: 0\n\ndata: 1\n\ndata: 2\n\n"


TOOLS = (
    b'data: {"choices":[{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,"id":"c0","type":"function",'
    b'"function":{"name":"pick","arguments":""}}]}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\\"a"}}]}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"c1","type":"function",'
    b'"function":{"name":"pick","arguments":"\\":1}"}}]},"logprobs":{"content":[{"token":"x","logprob":-Infinity,'
    b'"bytes":[255],"top_logprobs":[]}]},"finish_reason":"tool_calls"}]}\n\n',
    b"data: [DONE]\n\n",
)

CHOICES = (
    b'data: {"choices":[{"index":1,"delta":{"role":"assistant","content":""}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n',
    b'data: {"choices":[{"index":1,"delta":{"content":"b"},"finish_reason":"length"}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"length"}]}\n\n',
    b'data: {"choices":[],"usage":{"prompt_tokens":7,"total_tokens":9,"completion_tokens":2}}\n\n',
    b"data: [DONE]\n\n",
)

COMMENTS = (
    b": x\n\n", b":\n", b"id: 7\ndata: 1\n\n", b": ping\n\n", b"id:\nretry: 10\nevent: e\ndata: 2\n\n", b"data\n\n",
    b"data: [DONE]\n\n",
)  # fmt: skip


@pytest.mark.parametrize("events", [TOOLS, CHOICES, COMMENTS], ids=["tools and logprobs", "choices", "comments"])
async def test_a_stream_keeps_its_bytes(edge: Edge, events: tuple[bytes, ...]) -> None:
    whole = b"".join(events)
    say = Say()
    async with RawWorker(say) as worker:
        edge.add(worker)
        for step in (1, 37, len(whole)):
            pieces = [whole[start : start + step] for start in range(0, len(whole), step)]
            say.pieces = (STREAM_HEAD, *map(chunk, pieces), LAST_CHUNK)
            assert body_of(await ask(edge, post())) == whole, f"in pieces of {step}"
        await edge.at_rest()
        for record in edge.told.records:
            assert record.outcome is Outcome.SERVED
            if events is CHOICES:
                assert (record.events, record.prompt_tokens, record.completion_tokens) == (6, 7, 2)


async def test_what_an_sdk_reads_of_two_choices_and_their_usage(edge: Edge) -> None:
    async with RawWorker(Say(STREAM_HEAD, *map(chunk, CHOICES), LAST_CHUNK)) as worker:
        edge.add(worker)
        texts = ["", ""]
        async with openai.AsyncOpenAI(base_url=edge.url + "/v1", api_key="k", max_retries=0) as client:
            stream = await client.chat.completions.create(
                model="m", messages=[], n=2, stream=True, stream_options={"include_usage": True}
            )
            async for part in stream:
                for choice in part.choices:
                    texts[choice.index] += choice.delta.content or ""
        assert texts == ["a", "b"]
        assert part.usage is not None
        assert part.usage.completion_tokens == 2


@pytest.mark.parametrize("name", [b"bytes", b"bytes_only"])
async def test_binary_vectors_keep_every_octet_and_their_long_header(edge: Edge, name: bytes) -> None:
    octets = bytes(range(256)) * 4 + b"\r\n\r\n0\r\n\r\ndata: x\n\n\x00"
    entries = ",".join(f'{{"index":{place},"embedding":[{place * 4},{place * 4 + 4}]}}' for place in range(2000))
    headers = [b"content-type: application/octet-stream"]
    if name == b"bytes":
        headers.append(b"metadata: " + entries.encode())
    async with RawWorker(Say(answer(octets, *headers))) as worker:
        edge.add(worker)
        body = b'{"model":"m","input":["x"],"encoding_format":"%s","embed_dtype":"float16","endianness":"big"}' % name
        talk = await edge.talk(post(body, path=b"/v1/embeddings"))
        raw = await talk.rest()
        assert worker.requests[0][1] == body
        assert body_of(raw) == octets
        assert headers_of(raw).get(b"metadata", b"") == (entries.encode() if name == b"bytes" else b"")


async def test_a_head_beyond_what_is_read_is_told_as_such(edge: Edge) -> None:
    async with RawWorker(Say(answer(b"x", b"metadata: " + b"m" * 1_200_000))) as worker:
        edge.add(worker)
        raw = await ask(edge, post(path=b"/pooling"))
        error = json.loads(body_of(raw))["error"]
        assert (status_of(raw), error["code"]) == (502, "worker_no_answer")
        assert "bytes" in error["message"]


NO_JSON = (
    (500, b'{"error":{"message":"Out of range float values are not JSON compliant: nan","code":500}}'),
    (500, b"Internal Server Error"),
    (200, b'{"data":[{"embedding":[NaN,-Infinity]}],"usage":{"prompt_tokens":NaN,"completion_tokens":2}}'),
    (200, b'{"choices":[{"logprobs":{"token_logprobs":[null,-inf]}}]}'),
    (200, b'{"text":"\\ud800\xed\xa0\x80\xff"}'),
    (200, b"[" * 50_000),
)


async def test_an_answer_that_is_no_json_is_the_clients_to_read(edge: Edge) -> None:
    say = Say()
    async with RawWorker(say) as worker:
        edge.add(worker)
        for status, body in NO_JSON:
            say.pieces = (answer(body, b"content-type: application/json", status=status),)
            for _ in range(3):
                raw = await ask(edge, post())
                assert (status_of(raw), body_of(raw)) == (status, body)
        await edge.at_rest()
        # A 500 counts as a request that ended with it; whoever is alone is not left out for any number of them.
        metrics = metrics_of({})
        for record in edge.told.records:
            metrics.ended(record)
        found = samples(metrics)
        for status, times in ((500, 6), (200, 12)):
            labels = f'endpoint="/v1/chat/completions",model="m",status="{status}"'
            assert found[f"warmset_requests_total{{{labels}}}"] == times
        assert not [name for name in found if name.startswith("warmset_upstream_errors_total")]
        assert not edge.told.failures
        (state,) = edge.router.workers.values()
        assert edge.router.pools["m"].takes(state)


async def test_a_broken_stream_of_no_json_ends_with_an_event_all_the_same(edge: Edge) -> None:
    first = b""

    async def script(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(STREAM_HEAD + chunk(b"event: response.created\ndata: %s\n\n" % first))
        await asyncio.sleep(0.01)
        connection.reset()

    async with RawWorker(script) as worker:
        edge.add(worker)
        for first in (b'{"response":{"x":NaN}}', b'{"response":' + b"[" * 50_000, b"\xff", b"7", b'"a"'):
            body = body_of(await ask(edge, post(path=b"/v1/responses")))
            assert body.startswith(b"event: response.created\ndata: %s\n\n" % first)
            name, data = body.split(b"\n\n")[1].split(b"\n")
            assert name == b"event: response.failed"
            assert json.loads(data.removeprefix(b"data: "))["response"]["status"] == "failed"


async def test_http_2_is_not_spoken_and_breaks_nothing_else(edge: Edge) -> None:
    """One GOAWAY ends all streams of an HTTP/2 connection; here each request has a connection of its own."""
    go_on = asyncio.Event()

    async def stream(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(STREAM_HEAD + chunk(b"data: 1\n\n"))
        await go_on.wait()
        await connection.send(chunk(b"data: 2\n\n") + LAST_CHUNK)

    settings, goaway = b"\0\0\0\4\0\0\0\0\0", b"\0\0\x08\7\0\0\0\0\0" + b"\0\0\0\1" + b"\0\0\0\0"
    async with RawWorker(stream, Say(settings + goaway)) as worker:
        edge.add(worker)
        running = await edge.talk(post())
        await running.until(b"data: 1\n\n")
        for _ in range(3):
            assert status_of(await ask(edge, post())) == 502
        go_on.set()
        assert (await running.rest()).endswith(chunk(b"data: 2\n\n") + LAST_CHUNK)
        head = worker.requests[0][0]
        assert head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
        assert not {b"upgrade", b"http2-settings", b"connection"} & set(headers_of(head))


# Requests


async def test_every_path_reaches_the_worker_as_it_is(edge: Edge) -> None:
    async with RawWorker() as worker:
        edge.add(worker)
        taking_json = [endpoint for endpoint in ENDPOINTS if not endpoint.is_form]
        for endpoint in taking_json:
            path = endpoint.path.encode()
            assert status_of(await ask(edge, post(path=path + b"?x=%2f"))) == 200
            head, body = worker.requests[-1]
            assert head.startswith(b"POST " + path + b"?x=%2f HTTP/1.1\r\n")
            assert body == BODY
        assert len(worker.requests) == len(taking_json)


PROMPTS = ("[1,2,3]", "[[1,2],[3]]", '["a",  "b"]', "[]", "[[]]", '[["a"],[1]]', f"[{','.join(['151643'] * 20_000)}]")


async def test_tokens_and_batches_pass(edge: Edge) -> None:
    async with RawWorker() as worker:
        edge.add(worker)
        for path, member in ((b"/v1/completions", "prompt"), (b"/v1/embeddings", "input")):
            for prompt in PROMPTS:
                body = f'{{"model":"m","{member}":{prompt}}}'.encode()
                assert status_of(await ask(edge, post(body, path=path))) == 200, prompt[:30]
                assert worker.requests[-1][1] == body


async def test_an_sdks_own_encoding_of_vectors_is_not_touched(edge: Edge) -> None:
    """Left to itself it asks for base64, and decodes that."""

    async def script(connection: Connected) -> None:
        while True:
            document = json.loads(await connection.read_request())
            is_packed = document["encoding_format"] == "base64"
            vector = '"AACAPwAAAMA="' if is_packed else "[1.0,-2.0]"
            body = b'{"object":"list","data":[{"index":0,"embedding":%s}],"model":"m"}' % vector.encode()
            await connection.send(answer(body, b"content-type: application/json"))

    async with RawWorker(script) as worker:
        edge.add(worker)
        async with openai.AsyncOpenAI(base_url=edge.url + "/v1", api_key="k", max_retries=0) as client:
            packed = await client.embeddings.create(model="m", input="x")
            plain = await client.embeddings.create(model="m", input="x", encoding_format="float")
        assert packed.data[0].embedding == plain.data[0].embedding == [1.0, -2.0]
        assert [json.loads(body)["encoding_format"] for _, body in worker.requests] == ["base64", "float"]


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_picture_of_megabytes_passes_by_default(start_edge: StartEdge, is_chunked: bool) -> None:
    edge = await start_edge(max_body_bytes=Config.model_fields["max_body_bytes"].default)
    url = b"data:image/png;base64," + b"QUJD" * (8_912_896 // 4)  # 8.5 MiB
    body = b'{"model":"m","messages":[{"content":[{"image_url":{"url":"%s"}}]}]}' % url
    request = post(body)
    if is_chunked:
        head = request[: -len(body)].replace(b"content-length: %d" % len(body), b"transfer-encoding: chunked")
        pieces = (chunk(body[start : start + 100_000]) for start in range(0, len(body), 100_000))
        request = head + b"".join(pieces) + LAST_CHUNK
    async with RawWorker() as worker:
        edge.add(worker)
        assert status_of(await ask(edge, request)) == 200
        assert worker.requests[0][1] == body
        assert edge.proxy.held.size == 0


def nested(levels: int, kind: str) -> bytes:
    """A body with arrays in it, or with a tool's parameters, nested that deep."""
    if kind == "arrays":
        return b'{"model":"m","x":' + b"[" * levels + b"]" * levels + b"}"
    schema = b'{"properties":' * (levels - 4) + b"{}" + b"}" * (levels - 4)
    return b'{"model":"m","tools":[{"function":{"parameters":%s}}]}' % schema


async def test_a_depth_bomb_is_refused_and_what_is_merely_deep_is_not(edge: Edge) -> None:
    async with RawWorker() as worker:
        edge.add(worker)
        for kind in ("arrays", "schema"):
            for levels, status in ((100, 200), (1100, 400), (20_000, 400), (100, 200)):
                raw = await ask(edge, post(nested(levels, kind)))
                assert status_of(raw) == status, (kind, levels)
                if status == 400:
                    assert json.loads(body_of(raw))["error"]["code"] == "invalid_body"
        for opened in (b"[", b'{"a":'):
            assert status_of(await ask(edge, post(b'{"model":"m","x":' + opened * 20_000))) == 400
        assert len(worker.requests) == 4


async def test_half_a_character_reaches_no_worker(edge: Edge) -> None:
    async with RawWorker() as worker:
        edge.add(worker)
        for text in (b'"\\ud800"', b'"\\udc00 \\ud800"', b'"\xed\xa0\x80"', b'["a", {"b": "\\uDfFf"}]'):
            for member in (b"messages", b"user"):
                raw = await ask(edge, post(b'{"model":"m","%s":%s,"stream":true}' % (member, text)))
                assert (status_of(raw), json.loads(body_of(raw))["error"]["code"]) == (400, "invalid_body")
        assert not worker.requests


FORM = b'--b\r\ncontent-disposition: form-data; name="model"\r\n\r\nm\r\n--b\r\n\r\n' + b"\x00" * 100_000


async def test_a_form_where_json_is_asked_for_is_refused_before_a_worker_is_asked(edge: Edge) -> None:
    async with RawWorker() as worker:
        edge.add(worker)
        form = b"content-type: multipart/form-data; boundary=b"
        raw = await ask(edge, post(FORM, form, path=b"/v1/chat/completions"))
        assert (status_of(raw), json.loads(body_of(raw))["error"]["code"]) == (400, "invalid_body")
        assert not worker.requests
