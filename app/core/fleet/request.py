"""What the core may know of a request. Never the prompt itself."""

from dataclasses import dataclass

from app.core.fleet.priority import Priority
from app.core.fleet.service import Service
from app.core.fleet.tenant import DEFAULT_TENANT


@dataclass(slots=True)
class RequestFacts:
    """Treated as immutable (frozen costs twice as much to build, and this is built once per request).

    model: the model id that workers know, after aliases.
    endpoint: path of ours that received it, such as `/v1/chat/completions`.
    key: routing key, from a header or the body, made unique to the tenant; None when the request names none.
    tenant: whose request it is.
    service: what a worker must serve; None when any worker of the model will do.
    is_sent_once: part of it cannot be sent again, once a worker was connected to.
    needs_logits: it sets parameters that engines refuse while they decode speculatively.
    tokens: estimated, of the prompt and of the longest answer that it asks for.
    priority: beside others, when it must wait. patience_s: how long its client will wait, None when it does not say.
    """

    request_id: str
    model: str
    endpoint: str
    key: bytes | None = None
    tenant: str = DEFAULT_TENANT
    service: Service | None = None
    needs_logits: bool = False
    is_sent_once: bool = False
    tokens: int = 1
    priority: Priority = Priority.NORMAL
    patience_s: float | None = None
