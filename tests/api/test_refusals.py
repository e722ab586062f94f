"""What the gateway itself answers: status, shape, and what to do next."""

import json

import httpx
import pytest

from app.api.endpoints import ENDPOINTS
from app.api.errors import SHAPES, EdgeReason
from app.api.families import ANTHROPIC_TYPES, Family, error_body
from app.core.fleet.reasons import RefusalReason
from tests.api.conftest import Edge, StartEdge
from tests.api.raw import headers_of, status_of
from tests.fakes.raw_worker import RawWorker


@pytest.mark.parametrize("reason", [*RefusalReason, *EdgeReason])
@pytest.mark.parametrize("family", Family)
def test_every_reason_has_a_shape_in_every_family(family: Family, reason: RefusalReason | EdgeReason) -> None:
    shape = SHAPES[reason]
    assert 400 <= shape.status < 600
    assert shape.message.endswith(".")
    error = json.loads(error_body(family, reason, "detail"))["error"]
    assert error["message"].endswith("(detail)")
    if family is Family.ANTHROPIC:
        assert error["type"] == ANTHROPIC_TYPES[shape.status]
    else:
        assert set(error) == {"message", "type", "param", "code"}
    if shape.status == 503:
        assert shape.retry_after_s is not None


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        (b"", 400, "invalid_body", None),
        (b'{"model": "m", oops', 400, "invalid_body", None),
        (b"[]", 400, "invalid_body", None),
        (b"nonsense", 400, "invalid_body", None),
        (b'{"model": 7}', 400, "invalid_body", "model"),
        (b'{"model": "m", "model": "m"}', 400, "invalid_body", None),
        (b'{"model": "m", "n": 17}', 400, "invalid_body", "n"),
        (b"{}", 404, "model_not_found", "model"),
        (b'{"model": null}', 404, "model_not_found", "model"),
        (b'{"model": ""}', 404, "model_not_found", "model"),
        (b'{"model": "nobody"}', 404, "model_not_found", "model"),
    ],
)
async def test_bad_bodies_reach_no_worker(edge: Edge, body: bytes, status: int, code: str, param: str | None) -> None:
    async with RawWorker() as worker:
        edge.add(worker)
        async with httpx.AsyncClient() as client:
            answer = await client.post(edge.url + "/v1/chat/completions", content=body)
        assert answer.status_code == status
        error = answer.json()["error"]
        assert (error["code"], error["param"], error["type"]) == (code, param, "invalid_request_error")
        assert answer.headers["x-request-id"] == "made-1"
        assert not worker.requests
        record = edge.told.records[0]
        assert (record.status, record.model) == (status, ""), "what a client makes up is no label"


async def test_anthropics_clients_get_anthropics_errors(edge: Edge) -> None:
    async with RawWorker() as worker:
        edge.add(worker)
        async with httpx.AsyncClient() as client:
            answer = await client.post(edge.url + "/v1/messages", content=b'{"model": "nobody"}')
        assert answer.status_code == 404
        assert answer.json()["type"] == "error"
        assert answer.json()["error"]["type"] == "not_found_error"


async def test_keys(start_edge: StartEdge) -> None:
    edge = await start_edge(keys=("one", "two"))
    async with RawWorker() as worker, httpx.AsyncClient() as client:
        edge.add(worker)

        async def status(path: str = "/v1/completions", **headers: str) -> int:
            answer = await client.post(edge.url + path, content=b'{"model": "m"}', headers=headers)
            if answer.status_code == 401:
                assert answer.json()["error"]["code"] == "invalid_api_key"
                assert answer.headers["www-authenticate"] == "Bearer"
            return answer.status_code

        assert await status() == 401
        assert await status(authorization="Bearer wrong") == 401
        assert await status(authorization="one") == 401
        assert await status(authorization="Bearer one") == 200
        assert await status(authorization="bearer two") == 200
        assert await status("/v1/messages", **{"x-api-key": "two"}) == 200
        assert (await client.get(edge.url + "/v1/models")).status_code == 401
        assert (await client.get(edge.url + "/nothing")).status_code == 401
        assert (await client.get(edge.url + "/health")).status_code == 200
        assert len(worker.requests) == 3


async def test_a_key_is_checked_before_the_body_is_read(start_edge: StartEdge) -> None:
    edge = await start_edge(keys=("one",))
    talk = await edge.talk(b"POST /v1/completions HTTP/1.1\r\nhost: g\r\ncontent-length: 1000000\r\n\r\n{")
    raw = await talk.rest()
    assert raw.startswith(b"HTTP/1.1 401 ")
    assert b"connection: close" in raw
    talk.leave()


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_body_is_counted_while_it_is_read(start_edge: StartEdge, is_chunked: bool) -> None:
    edge = await start_edge(max_body_bytes=1000)
    async with RawWorker() as worker:
        edge.add(worker)
        head = b"POST /v1/completions HTTP/1.1\r\nhost: g\r\n"
        if is_chunked:
            data = head + b"transfer-encoding: chunked\r\n\r\n" + b"190\r\n" + b" " * 400 + b"\r\n"
            talk = await edge.talk(data + b"190\r\n" + b" " * 400 + b"\r\n190\r\n" + b" " * 400 + b"\r\n")
        else:
            talk = await edge.talk(head + b"content-length: 1001\r\n\r\n")
        raw = await talk.rest()
        assert raw.startswith(b"HTTP/1.1 413 ")
        assert b'"code":"body_too_large"' in raw
        assert b"at most 1000 bytes" in raw
        assert not worker.requests
        talk.leave()


async def test_paths_and_methods(edge: Edge) -> None:
    async with RawWorker() as worker, httpx.AsyncClient() as client:
        edge.add(worker)
        for path in ("/sleep", "/v1/load_lora_adapter", "/v1/chat/completions/", "/metrics", "/docs", "/"):
            answer = await client.post(edge.url + path, content=b'{"model": "m"}')
            assert answer.status_code == 404, path
            assert answer.json()["error"]["code"] == "unknown_path"
            assert "/v1/chat/completions" in answer.json()["error"]["message"]
        for endpoint in ENDPOINTS:
            answer = await client.get(edge.url + endpoint.path)
            assert answer.status_code == 405
            assert answer.headers["allow"] == "POST"
        assert (await client.post(edge.url + "/v1/models", content=b"{}")).headers["allow"] == "GET"
        assert (await client.get(edge.url + "/v1/models/nobody")).status_code == 404
        counted = ["unknown_path"] * 6 + ["method_not_allowed"] * (len(ENDPOINTS) + 1) + ["model_not_found"]
        assert edge.told.refusals == counted
        assert not worker.requests


@pytest.mark.parametrize("path", ["/v1//chat/completions", "/v1/%63hat/completions", "//v1/chat/completions"])
async def test_only_the_exact_path_counts(edge: Edge, path: str) -> None:
    async with RawWorker() as worker:
        edge.add(worker)
        body = b'{"model": "m"}'
        head = f"POST {path} HTTP/1.1\r\nhost: g\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        talk = await edge.talk(head.encode() + body)
        assert (await talk.rest()).startswith(b"HTTP/1.1 404 ")
        assert not worker.requests
        talk.leave()


async def test_models_are_merged(edge: Edge) -> None:
    async with RawWorker() as one, RawWorker() as two, RawWorker() as other, httpx.AsyncClient() as client:
        edge.add(one, "org/m")
        edge.add(two, "org/m")
        edge.add(other, "n")
        listed = (await client.get(edge.url + "/v1/models")).json()
        assert listed["object"] == "list"
        assert [model["id"] for model in listed["data"]] == ["n", "org/m"]
        assert (await client.get(edge.url + "/v1/models/org/m")).json()["id"] == "org/m"
        assert (await client.get(edge.url + "/v1/models/org%2Fm")).json()["id"] == "org/m"
        assert (await client.get(edge.url + "/v1/models/nobody")).status_code == 404


async def test_health_waits_for_a_worker(edge: Edge) -> None:
    async with httpx.AsyncClient() as client:
        answer = await client.get(edge.url + "/health")
        assert answer.status_code == 503
        assert "no worker is healthy yet" in answer.text
        async with RawWorker() as worker:
            edge.add(worker)
            answer = await client.get(edge.url + "/health")
            assert (answer.status_code, answer.content) == (200, b"")


async def test_bad_http_is_refused_in_openais_shape(edge: Edge) -> None:
    talk = await edge.talk(b"NONSENSE\r\n\r\n")
    head, body = (await talk.rest()).split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"]["code"] == "malformed_http"
    talk.leave()


@pytest.mark.parametrize("target", [b"POST /nope", b"GET /v1/models", b"POST /health", b"GET /v1/completions"])
async def test_a_body_that_nobody_reads_is_not_taken(edge: Edge, target: bytes) -> None:
    """However large it is, and however slowly it comes: the answer is there, and the connection ends with it."""
    async with RawWorker() as worker:
        edge.add(worker)
        talk = await edge.talk(target + b" HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")
        raw = await talk.rest()
        assert raw.count(b"HTTP/1.1 ") == 1
        assert headers_of(raw)[b"connection"] == b"close"
        assert not worker.requests


async def test_one_that_follows_its_answer_does_not_keep_the_connection(edge: Edge) -> None:
    async with RawWorker() as worker:
        edge.add(worker)
        talk = await edge.talk(b"GET /health HTTP/1.1\r\nhost: g\r\n\r\n")
        await talk.until(b"\r\n\r\n")
        talk.writer.write(b"GET /v1/models HTTP/1.1\r\nhost: g\r\ncontent-length: 1000000\r\n\r\n" + b"x" * 1000)
        assert status_of(await talk.rest()) == 200
