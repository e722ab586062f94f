"""What the gateway reads of a request. The body is parsed once and never written again."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from app.api.body import LISTS, BodyLimits, InvalidBody, parse_body
from app.api.endpoints import ENDPOINTS, SERVICES
from app.api.errors import EdgeReason
from app.api.splice import set_member
from app.core.fleet.exchange import Header
from app.core.fleet.request import RequestFacts

BATCHES = {each.path: (*LISTS, *each.batches) for each in ENDPOINTS} | {
    "/v1/responses": tuple(name for name in LISTS if name != "input"),  # there it is a conversation
}

KEY_HEADERS = (b"x-warmset-key", b"x-session-id")
"""Headers that name what a request belongs together with; `prompt_cache_key` of the body stands between them."""


class Inbound(NamedTuple):
    """A request that may be dispatched: what the router is told, and the bytes that a worker gets.

    document: the client's body as it was read, before anything was spliced into it.
    """

    facts: RequestFacts
    body: bytes
    asked_model: str
    """As the client named it; with an alias, not what `facts` says."""
    document: Mapping[str, Any]


class Rejected(NamedTuple):
    """`param`: the member of the body that is at fault, when it is one."""

    reason: EdgeReason
    detail: str = ""
    param: str | None = None


def read_request(
    body: bytes,
    headers: Sequence[Header],
    *,
    endpoint: str,
    request_id: str,
    aliases: Mapping[str, str],
    limits: BodyLimits,
) -> Inbound | Rejected:
    """Take facts from a JSON body. With an alias for its model, that one value is replaced in the bytes."""
    try:
        document = parse_body(body, limits, BATCHES[endpoint])
    except InvalidBody as error:
        return Rejected(EdgeReason.INVALID_BODY, str(error), error.param)
    model = document.get("model")
    if model is None or model == "":
        return Rejected(EdgeReason.MODEL_MISSING)
    if not isinstance(model, str):
        return Rejected(EdgeReason.INVALID_BODY, "'model' must be a string", "model")
    asked = model
    target = aliases.get(model)
    if target is not None:
        body = set_member(body, "model", target)
        model = target
    if document.get("cache_salt") == "":
        return Rejected(EdgeReason.INVALID_BODY, "'cache_salt' must not be empty; leave it out", "cache_salt")
    facts = RequestFacts(
        request_id,
        model,
        endpoint,
        routing_key(document, headers),
        service=SERVICES[endpoint],
        needs_logits=bool(document.get("min_p") or document.get("logit_bias")),
    )
    return Inbound(facts, body, asked, document)


def routing_key(document: Mapping[str, Any], headers: Sequence[Header]) -> bytes | None:
    """The first that applies: header x-warmset-key, body `prompt_cache_key`, header x-session-id."""
    session: bytes | None = None
    for name, value in headers:
        if name == KEY_HEADERS[0] and value:
            return value
        if name == KEY_HEADERS[1] and value:
            session = value
    key = document.get("prompt_cache_key")
    if isinstance(key, str) and key:
        return key.encode("utf-8", "surrogatepass")
    return session
