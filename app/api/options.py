"""What the operator chose for requests and their answers."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.api.body import DEFAULT_LIMITS, BodyLimits


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """max_body_bytes: of a request. aliases: model name that clients use -> model id that workers know.
    max_held_bytes: of all request bodies together that this process holds.
    sse_keepalive_s: time after which a stream that no worker has begun is kept alive, see keepalive.py; 0: never.
    split_batches: inputs of a part, when larger batches are cut over several workers, see fan_out.py; 0: never.
    max_metadata_bytes: of an answer's header `metadata`, see metadata.py; 0: no limit.
    """

    max_body_bytes: int
    aliases: Mapping[str, str]
    expose_routing_headers: bool
    body_limits: BodyLimits = DEFAULT_LIMITS
    max_held_bytes: int = 1 << 30
    sse_keepalive_s: float = 0.0
    split_batches: int = 0
    max_metadata_bytes: int = 0
