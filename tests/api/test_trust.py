"""What a client, or a worker, may say of itself and of where a request goes: nothing that the gateway goes by."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from app.telemetry.access import log_request
from app.telemetry.logs import JsonLines
from tests.api.conftest import Edge, StartEdge
from tests.api.raw import BODY, answer, body_of, headers_of, post, status_of
from tests.fakes.raw_worker import Connected, RawWorker


async def ask(edge: Edge, data: bytes) -> bytes:
    return await (await edge.talk(data)).rest()


async def test_no_header_of_one_connection_passes_and_none_of_ours_is_taken_away(edge: Edge) -> None:
    of_one_connection = (
        b"keep-alive: timeout=5", b"proxy-connection: keep-alive", b"proxy-authorization: Basic eA==",
        b"proxy-authenticate: Basic", b"te: trailers", b"trailer: x-late", b"upgrade: h2c", b"x-foo: 1", b"x-bar: 2",
    )  # fmt: skip
    named = b"connection: X-Foo, x-request-id ,host,content-length,authorization,accept-encoding,content-type"
    async with RawWorker() as worker:
        edge.add(worker)
        raw = await ask(edge, post(BODY, *of_one_connection, named, b"connection: x-bar", b"x-request-id: mine"))
        assert status_of(raw) == 200
        assert headers_of(worker.requests[0][0]) == {
            b"host": worker.url.removeprefix("http://").encode(),
            b"authorization": b"Bearer worker-key",
            b"accept-encoding": b"identity",
            b"x-request-id": b"mine",
            b"content-length": b"%d" % len(BODY),
        }


async def test_a_worker_does_not_speak_for_the_gateway(edge: Edge) -> None:
    forged = (
        b"x-warmset-worker: other", b"X-Warmset-Reason: other", b"x-warmset-anything: other", b"set-cookie: other",
        b"server: other", b"x-request-id: other", b"connection: x-secret", b"x-secret: other",
        b"x-warmset-simulated: true", b"x-vendor: kept",
    )  # fmt: skip

    async def script(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(answer(b"{}", *forged))

    async with RawWorker(script) as worker:
        edge.add(worker)
        raw = await ask(edge, post())
        found = headers_of(raw)
        assert b"other" not in raw
        assert found[b"x-warmset-worker"] == worker.url.removeprefix("http://").encode()
        assert (found[b"x-warmset-simulated"], found[b"x-vendor"]) == (b"true", b"kept")


async def test_neither_body_nor_header_says_where_a_request_goes(edge: Edge) -> None:
    async with RawWorker() as worker, RawWorker() as elsewhere:
        edge.add(worker)
        url = elsewhere.url.encode()
        place = url.removeprefix(b"http://")
        body = b'{"model":"m","api_base":"%s","base_url":"%s","api_key":"x","url":"%s","worker":"%s"}' % (
            url, url, url, place,
        )  # fmt: skip
        headers = (
            b"x-api-base: " + url, b"x-warmset-worker: " + place, b"x-forwarded-host: " + place,
            b"x-original-url: " + url, b"forwarded: host=" + place, b"x-gateway-destination-endpoint: " + place,
        )  # fmt: skip
        for target in (b"/v1/completions", b"/v1/completions?api_base=" + url, url + b"/v1/completions"):
            request = post(body, *headers, path=target).replace(b"host: g", b"host: " + place)
            assert status_of(await ask(edge, request)) == 200
            assert worker.requests[-1][1] == body
            assert headers_of(worker.requests[-1][0])[b"host"] == worker.url.removeprefix("http://").encode()
        assert not elsewhere.connections


HOSTS = (b"x/#@y", b"x/livez?", b"127.0.0.1/health#", b"g/ping", b"@g", b"g:80/../livez", b"", b"[::1]/health")


async def test_no_host_opens_what_needs_a_key(start_edge: StartEdge) -> None:
    edge = await start_edge(keys=("one",))
    async with RawWorker() as worker:
        edge.add(worker)
        for host in HOSTS:
            request = post(path=b"/v1/completions").replace(b"host: g", b"host: " + host)
            assert status_of(await ask(edge, request)) in (400, 401), host
            for path in (b"/v1/models", b"http://g/v1/models", b"/livez/../v1/models", b"//health/v1/models"):
                request = b"GET %s HTTP/1.1\r\nhost: %s\r\nconnection: close\r\n\r\n" % (path, host)
                assert status_of(await ask(edge, request)) in (400, 401), (host, path)
        with_key = (b"authorization: Bearer one",)
        for path in (b"/workers", b"/status", b"/livez", b"/metrics"):
            assert status_of(await ask(edge, post(b"{}", *with_key, path=path))) == 404, "of other listeners"
        assert not worker.requests


async def test_an_id_that_would_break_a_head_or_a_log_is_refused(edge: Edge) -> None:
    async with RawWorker() as worker:
        edge.add(worker)
        assert status_of(await ask(edge, post(BODY, b"x-request-id: " + b"a" * 1_000_000))) == 431
        for given in (b"a\rb", b"a\nx-warmset-key: b", b"a\0b", b"a\r\n b"):
            assert status_of(await ask(edge, post(BODY, b"x-request-id: " + given))) == 400
        assert not worker.requests


async def test_one_id_from_client_to_worker_to_log(edge: Edge) -> None:
    async with RawWorker() as worker:
        edge.add(worker)
        for given, used in ((b"x-request-id: r-1", b"r-1"), (b"x-other: 1", b"made-1")):
            raw = await ask(edge, post(BODY, given))
            assert headers_of(raw)[b"x-request-id"] == used
            assert headers_of(worker.requests[-1][0])[b"x-request-id"] == used
        await edge.at_rest()
        assert [record.request_id for record in edge.told.records] == ["r-1", "made-1"]


@pytest.fixture
def log_lines() -> Iterator[io.StringIO]:
    """What the process would write to its log."""
    lines, root = io.StringIO(), logging.getLogger()
    handler, level = logging.StreamHandler(lines), root.level
    handler.setFormatter(JsonLines())
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield lines
    root.removeHandler(handler)
    root.setLevel(level)


async def test_no_name_forges_a_line_of_the_log_and_no_prompt_is_in_it(edge: Edge, log_lines: io.StringIO) -> None:
    forged = "m\n2026-01-01 INFO ok\r\u2028\x1b[2J"
    secret = "a sentence that must stay between client and worker"
    document = {"messages": [{"role": "user", "content": secret}], "user": forged, "metadata": {forged: forged}}

    async def breaks(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n" + secret.encode())

    async with RawWorker() as worker, RawWorker(breaks) as broken:
        edge.add(worker, forged)
        edge.add(broken, "broken")
        for model, status in ((forged, 200), (forged + "!", 404), ("broken", 200)):
            raw = await ask(edge, post(json.dumps(document | {"model": model}).encode()))
            assert status_of(raw) == status
        assert status_of(await ask(edge, post(json.dumps(document).encode() + b"}"))) == 400
        await edge.at_rest()
        for record in edge.told.records:
            log_request(record)
    lines = log_lines.getvalue().splitlines()
    assert len(lines) == 5, "one for each request, and one for what broke"
    assert [line["event"] for line in map(json.loads, lines)].count("request") == 4
    assert secret not in log_lines.getvalue()
    assert all(line.isascii() and line.isprintable() for line in lines)
    assert json.loads(lines[1])["model"] == forged


async def test_a_refusal_repeats_a_made_up_model_in_part_and_escaped(edge: Edge) -> None:
    async with RawWorker() as worker:
        edge.add(worker)
        raw = await ask(edge, post(json.dumps({"model": "m\n2026 INFO ok\x1b[2J" + "x" * 5000}).encode()))
        message = json.loads(body_of(raw))["error"]["message"]
        assert status_of(raw) == 404
        assert message.isprintable()
        assert len(message) < 400
