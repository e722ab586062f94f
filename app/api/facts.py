"""What the gateway reads of a request. The body is parsed once and never written again."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from app.api.body import LISTS, BodyLimits, InvalidBody, parse_body
from app.api.endpoints import ENDPOINTS, SERVICES
from app.api.errors import EdgeReason
from app.api.splice import set_member
from app.core.fleet.exchange import Header
from app.core.fleet.priority import BY_LABEL
from app.core.fleet.request import RequestFacts

BATCHES = {each.path: (*LISTS, *each.batches) for each in ENDPOINTS} | {
    "/v1/responses": tuple(name for name in LISTS if name != "input"),  # there it is a conversation
}

PRIORITY_HEADER = b"x-warmset-priority"
PATIENCE_HEADER = b"x-warmset-timeout-secs"

SECONDS = re.compile(rb"[0-9]{1,6}(?:\.[0-9]{1,6})?")

MOST_TOKENS = 1_000_000
"""Of one answer; who asks for more is taken to want the longest that there is."""

BYTES_PER_TOKEN = 4
"""Of a prompt in English."""

LENGTHS = ("max_completion_tokens", "max_tokens", "max_output_tokens")

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
        tokens=_tokens(document, len(body)),
    )
    return read_manners(headers, facts) or Inbound(facts, body, asked, document)


def read_manners(headers: Sequence[Header], facts: RequestFacts) -> Rejected | None:
    """Put into `facts` what the headers say of how the request waits; why they cannot be read, or None."""
    for name, value in headers:
        if name == PRIORITY_HEADER:
            priority = BY_LABEL.get(value.decode("latin-1").lower())
            if priority is None:
                return Rejected(EdgeReason.INVALID_HEADER, f"x-warmset-priority is one of {', '.join(BY_LABEL)}")
            facts.priority = priority
        elif name == PATIENCE_HEADER:
            if not SECONDS.fullmatch(value):
                return Rejected(EdgeReason.INVALID_HEADER, "x-warmset-timeout-secs is a number of seconds, such as 2.5")
            facts.patience_s = float(value)
    return None


def _tokens(document: Mapping[str, Any], size: int) -> int:
    """An estimate, for fairness between those who wait: the prompt by its bytes, the answer by what is asked for."""
    length = 0
    for name in LENGTHS:
        asked = document.get(name)
        if isinstance(asked, int) and asked > length:
            length = asked
    return max(1, size // BYTES_PER_TOKEN + min(length, MOST_TOKENS))


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
