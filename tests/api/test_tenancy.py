"""Keys, scopes, limits and names of tenants, as a client meets them."""

import asyncio
import json
from hashlib import sha256
from typing import Any

import httpx
import pytest

from app.api.endpoints import ENDPOINTS
from app.api.tenancy import TenantSalt
from app.core.fleet.tenant import Grant, KeySet, Limits, Plane
from app.core.tenants.namespace import Namespace
from tests.api.conftest import Edge, StartEdge
from tests.fakes.raw_worker import Connected, RawWorker
from tests.patience import eventually, soon

BODY = b'{"model": "m"}'


def grant(name: str, tenant: str = "acme", **more: Any) -> Grant:
    """Its key is its name."""
    return Grant(name, tenant, sha256(name.encode()).digest(), **more)


async def post(edge: Edge, key: str, body: bytes = BODY, path: str = "/v1/completions") -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.post(edge.url + path, content=body, headers={"authorization": f"Bearer {key}"})


def usage(prompt: int, completion: int) -> Any:
    async def script(connection: Connected) -> None:
        while True:
            await connection.read_request()
            body = json.dumps({"usage": {"prompt_tokens": prompt, "completion_tokens": completion}}).encode()
            await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))

    return script


async def test_planes_and_dates(start_edge: StartEdge) -> None:
    keys = [
        grant("good"),
        grant("old", expires=1.0),
        grant("early", not_before=1e12),
        grant("ops", planes=(Plane.ADMIN,)),
    ]
    edge = await start_edge(key_set=KeySet(keys))
    async with RawWorker() as worker:
        edge.add(worker)
        assert (await post(edge, "good")).status_code == 200
        for key in ("old", "early", "unknown", "x"):
            assert (await post(edge, key)).status_code == 401
        refused = await post(edge, "ops")
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "wrong_plane")
        assert refused.headers["connection"] == "close", "its body was not read"
        assert (await post(edge, "ops", path="/v1/messages")).json()["error"]["type"] == "permission_error"
        edge.ring.replace([])
        assert (await post(edge, "good")).status_code == 401
    assert [record.key_name for record in edge.told.records if record.status == 200] == ["good"]
    assert {record.tenant for record in edge.told.records} == {"acme", ""}


async def test_models_of_a_key(start_edge: StartEdge) -> None:
    edge = await start_edge(
        key_set=KeySet([grant("k", models=("m*", "alias"))]), aliases={"alias": "other", "no": "other"}
    )
    headers = {"authorization": "Bearer k"}
    async with RawWorker() as one, RawWorker() as two, httpx.AsyncClient(headers=headers) as client:
        edge.add(one, "m")
        edge.add(two, "other")
        for model, status in (
            ("m", 200),
            ("alias", 200),
            ("other", 403),
            ("no", 403),
            ("nobody", 403),
            ("m-none", 404),
        ):
            answer = await client.post(edge.url + "/v1/completions", json={"model": model})
            assert answer.status_code == status, model
            if status == 403:
                assert answer.json()["error"]["code"] == "model_not_allowed"
        listed = (await client.get(edge.url + "/v1/models")).json()["data"]
        assert [model["id"] for model in listed] == ["m", "alias"]
        for model, status in (("m", 200), ("alias", 200), ("other", 404), ("no", 404)):
            assert (await client.get(f"{edge.url}/v1/models/{model}")).status_code == status


async def test_requests_are_limited_and_told_how_long(start_edge: StartEdge) -> None:
    keys = KeySet([grant("k"), grant("free", "other")], {"acme": Limits(requests_per_minute=12)})
    edge = await start_edge(key_set=keys, clock=lambda: 0.0)
    async with RawWorker() as worker:
        edge.add(worker)
        first = await post(edge, "k")
        assert first.headers["x-ratelimit-limit-requests"] == "12"
        assert first.headers["x-ratelimit-remaining-requests"] == "1"
        assert first.headers["x-ratelimit-reset-requests"].endswith("s")
        await post(edge, "k")
        refused = await post(edge, "k")
        assert refused.status_code == 429
        assert (refused.json()["error"]["code"], refused.json()["error"]["type"]) == (
            "rate_limit_exceeded",
            "rate_limit_error",
        )
        assert refused.headers["retry-after"] == "5"
        assert refused.headers["retry-after-ms"] == "5000"
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"
        assert "x-ratelimit-limit-requests" not in (await post(edge, "free")).headers
        assert len(worker.requests) == 3
    assert edge.told.records[2].over == "requests"


async def test_a_limit_is_asked_before_the_body_is_read(start_edge: StartEdge) -> None:
    edge = await start_edge(key_set=KeySet([grant("k")], {"acme": Limits(requests_per_minute=1)}), clock=lambda: 0.0)
    await post(edge, "k")
    head = b"POST /v1/completions HTTP/1.1\r\nhost: g\r\nauthorization: Bearer k\r\ncontent-length: 1000000\r\n\r\n{"
    talk = await edge.talk(head)
    assert (await talk.rest()).startswith(b"HTTP/1.1 429 ")


async def test_tokens_are_charged_as_the_engine_counts_them(start_edge: StartEdge) -> None:
    edge = await start_edge(key_set=KeySet([grant("k")], {"acme": Limits(tokens_per_minute=600)}), clock=lambda: 0.0)
    async with RawWorker(usage(90, 40)) as worker:
        edge.add(worker)
        assert (await post(edge, "k")).headers["x-ratelimit-remaining-tokens"] == "100"
        refused = await post(edge, "k")
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "4", "30 of debt and one more, at 10 a second"
        assert refused.headers["x-ratelimit-remaining-tokens"] == "0"


async def test_bytes_in_flight_are_counted_while_they_come(start_edge: StartEdge) -> None:
    edge = await start_edge(key_set=KeySet([grant("k")], {"acme": Limits(in_flight_bytes=500)}))
    async with RawWorker() as worker:
        edge.add(worker)
        body = json.dumps({"model": "m", "prompt": "x" * 600}).encode()
        refused = await post(edge, "k", body)
        assert refused.status_code == 429
        assert "retry-after" not in refused.headers, "it is more than the whole limit"
        assert refused.headers["x-should-retry"] == "false"
        for _ in range(3):
            assert (await post(edge, "k", body[:1] + b'"model":"m"}')).status_code == 200


@pytest.mark.parametrize("leaves", ["before the body", "before the answer", "in the stream", "never"])
async def test_a_place_is_given_back_however_a_request_ends(start_edge: StartEdge, leaves: str) -> None:
    keys = KeySet([grant("k", limits=Limits(concurrency=1))], {"acme": Limits(concurrency=1, in_flight_bytes=10_000)})
    edge = await start_edge(key_set=keys)
    is_asked = asyncio.Event()

    async def script(connection: Connected) -> None:
        await connection.read_request()
        is_asked.set()
        if leaves == "before the answer":
            await connection.until_closed()
        await connection.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        await connection.send(b"8\r\ndata: 1\n\r\n3\r\n\nda\r\n")
        if leaves == "in the stream":
            await connection.until_closed()
        await connection.send(b"0\r\n\r\n")

    async with RawWorker(script) as worker:
        edge.add(worker)
        head = b"POST /v1/completions HTTP/1.1\r\nhost: g\r\nauthorization: Bearer k\r\ncontent-length: %d\r\n\r\n"
        talk = await edge.talk(head % len(BODY) + (b"{" if leaves == "before the body" else BODY))
        if leaves == "before the body":
            await eventually(lambda: edge.proxy.held.size)
        else:
            await soon(is_asked.wait())
        if leaves in ("before the body", "before the answer", "in the stream"):
            assert (await post(edge, "k")).status_code == 429
        if leaves == "in the stream":
            await talk.until(b"data: 1\n\n")
        if leaves == "never":
            await talk.until(b"0\r\n\r\n")
        talk.leave()
        await edge.at_rest()
        meters = edge.admission.meters(keys.grants[0], 1e9)
        await eventually(lambda: not any(meter.under_way or meter.bytes_held for meter in meters))


async def test_equal_keys_of_two_tenants_never_meet(start_edge: StartEdge) -> None:
    edge = await start_edge(key_set=KeySet([grant("a", "one"), grant("a2", "one"), grant("b", "two")]))
    seen: list[tuple[str, bytes | None]] = []
    decided = edge.told.decided
    edge.told.decided = lambda facts, verdict: seen.append((facts.tenant, facts.key)) or decided(facts, verdict)  # type: ignore[method-assign, func-returns-value]
    async with RawWorker() as worker:
        edge.add(worker)
        for key in ("a", "a2", "b"):
            await post(edge, key, b'{"model":"m","prompt_cache_key":"same"}')
        await post(edge, "a")
    (one, first), (_, second), (two, third), (_, none) = seen
    assert (one, two) == ("one", "two")
    assert first == second != third
    assert b"same" not in (first or b"") + (third or b"")
    assert none is None


SALT = Namespace([b"a secret of sixteen bytes"]).cache_salt("acme").encode()


@pytest.mark.parametrize(
    ("mode", "body", "sent"),
    [
        ("off", b'{"model":"m","cache_salt":"x"}', b'{"model":"m","cache_salt":"x"}'),
        ("off", b'{"model":"m"}', b'{"model":"m"}'),
        ("add", b'{"model":"m","cache_salt":"x"}', b'{"model":"m","cache_salt":"x"}'),
        ("add", b'{"model":"m","cache_salt": null }', b'{"model":"m","cache_salt": "SALT" }'),
        ("add", b' {"model":"m"}', b' {"cache_salt":"SALT","model":"m"}'),
        ("overwrite", b'{"model":"m","cache\\u005fsalt":"x"}', b'{"model":"m","cache\\u005fsalt":"SALT"}'),
        ("overwrite", b'{"cache_salt":{"a":[1,"]"]} ,"model":"m"}', b'{"cache_salt":"SALT" ,"model":"m"}'),
        ("overwrite", b'{"model":"m"}', b'{"cache_salt":"SALT","model":"m"}'),
    ],
)
async def test_the_salt_of_a_tenant(start_edge: StartEdge, mode: str, body: bytes, sent: bytes) -> None:
    edge = await start_edge(key_set=KeySet([grant("k")]), salt=TenantSalt(mode))
    async with RawWorker() as worker:
        edge.add(worker)
        assert (await post(edge, "k", body, "/v1/chat/completions")).status_code == 200
        assert worker.requests[0][1] == sent.replace(b"SALT", SALT)
        await post(edge, "k", b'{"model":"m","prompt":"x"}', "/tokenize")
        assert worker.requests[1][1] == b'{"model":"m","prompt":"x"}', "an endpoint that knows no salt gets none"


def test_salted_endpoints_are_those_of_vllms_schema() -> None:
    assert {endpoint.path for endpoint in ENDPOINTS if endpoint.takes_salt} == {
        "/v1/chat/completions",
        "/v1/chat/completions/batch",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/generative_scoring",
        "/v1/embeddings",
        "/v1/classify",
        "/classify",
        "/v1/pooling",
        "/pooling",
        "/v1/score",
        "/score",
        "/v1/rerank",
        "/v2/rerank",
        "/rerank",
    }
