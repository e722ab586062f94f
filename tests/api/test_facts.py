"""What is read of a request."""

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
