"""The access log: one line per request that ended, at INFO. Never a prompt, an answer or a key."""

import logging
from collections.abc import Sequence
from typing import Any

from app.core.fleet.record import RequestRecord
from app.telemetry.metrics import Metrics

log = logging.getLogger("warmset.access")

EVENT = "request"


def log_request(record: RequestRecord) -> None:
    """Costs one comparison when the level is above INFO. Fields that say nothing about this request are left out."""
    if not log.isEnabledFor(logging.INFO):
        return
    fields: dict[str, Any] = {
        "request_id": record.request_id,
        "method": record.method,
        "path": record.endpoint,
        "status": record.status,
        "outcome": record.outcome.value,
        "duration_ms": round(record.duration_s * 1000, 3),
        "bytes_in": record.bytes_in,
        "bytes_out": record.bytes_out,
    }
    if record.tenant:
        fields["tenant"] = record.tenant
        fields["key"] = record.key_name
    if record.model:
        fields["model"] = record.model
    dispatch = record.dispatch
    if dispatch is not None:
        fields["worker"] = dispatch.worker.id
        fields["policy"] = dispatch.policy
        fields["reason"] = dispatch.reason.value
    if record.refusal:
        fields["refusal"] = record.refusal
    if record.over:
        fields["limit"] = record.over
    if record.queued_s:
        fields["queued_ms"] = round(record.queued_s * 1000, 3)
    if record.ttft_s is not None:
        fields["ttft_ms"] = round(record.ttft_s * 1000, 3)
    if record.events:
        fields["events"] = record.events
    for name in ("prompt_tokens", "completion_tokens", "cached_tokens"):
        count = getattr(record, name)
        if count is not None:
            fields[name] = count
    log.info(EVENT, extra=fields)


class EndedRequests:
    """What the data plane tells of every request that ended: counted in the metrics, and one line in the log."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.gap_bounds_s: Sequence[float] = metrics.gap_bounds_s

    def ended(self, record: RequestRecord) -> None:
        self._metrics.ended(record)
        log_request(record)
