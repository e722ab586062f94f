"""What is read of a request."""

import orjson
import pytest

from app.api.body import BodyLimits
from app.api.facts import Inbound, Rejected, read_request

SESSION = (b"x-session-id", b"s")


def read(body: bytes, *headers: tuple[bytes, bytes], aliases: dict[str, str] | None = None) -> Inbound | Rejected:
    return read_request(
        body, headers, endpoint="/v1/completions", request_id="r", aliases=aliases or {}, limits=BodyLimits()
    )


@pytest.mark.parametrize(
    ("body", "headers", "key"),
    [
        (b'{"model":"m"}', (), None),
        (b'{"model":"m"}', (SESSION,), b"s"),
        (b'{"model":"m","prompt_cache_key":"p"}', (SESSION,), b"p"),
        (b'{"model":"m","prompt_cache_key":"p"}', (SESSION, (b"x-warmset-key", b"w")), b"w"),
        (b'{"model":"m","prompt_cache_key":7}', (), None),
        (b'{"model":"m","prompt_cache_key":""}', (SESSION,), b"s"),
    ],
)
def test_the_routing_key(body: bytes, headers: tuple[tuple[bytes, bytes], ...], key: bytes | None) -> None:
    inbound = read(body, *headers)
    assert isinstance(inbound, Inbound)
    assert inbound.facts.key == key
    assert inbound.body is body, "not a byte is touched without an alias"


def test_an_alias_is_resolved_before_the_router_sees_it() -> None:
    inbound = read(b'{"model":"gpt-4"}', aliases={"gpt-4": "llama"})
    assert isinstance(inbound, Inbound)
    assert inbound.facts.model == "llama"
    assert inbound.body == b'{"model":"llama"}'


@pytest.mark.parametrize(
    ("endpoint", "member", "is_batch"),
    [
        ("/v1/embeddings", "input", True),
        ("/v1/responses", "input", False),
        ("/v1/chat/completions", "messages", False),
        ("/v1/chat/completions/batch", "messages", True),
        ("/v2/embed", "inputs", True),
        ("/v1/pooling", "data", True),
    ],
)
def test_what_is_a_batch_depends_on_the_endpoint(endpoint: str, member: str, is_batch: bool) -> None:
    """A conversation of many turns is one request."""
    body = orjson.dumps({"model": "m", member: [{"role": "user", "content": "x"}] * 5})
    limits = BodyLimits(max_inputs=4)
    read = read_request(body, (), endpoint=endpoint, request_id="r", aliases={}, limits=limits)
    assert isinstance(read, Rejected) == is_batch
