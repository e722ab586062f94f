"""Events <-> plain records, so that they can be sent to another process or written down. Pure.

A record is a dict of JSON values whose "event" names its type. Times are monotonic seconds of the machine.
"""

from collections.abc import Callable, Mapping
from typing import Any

from app.core.fleet.engine import Engine
from app.core.fleet.events import HealthReported, LoadSampled, MarkTold, WorkerGone, WorkerOrdered, WorkerSeen
from app.core.fleet.load import LoadSample
from app.core.fleet.order import Order, OrderKind
from app.core.fleet.reasons import MarkKind
from app.core.fleet.worker import Worker

Record = Mapping[str, Any]

FleetEvent = WorkerSeen | WorkerGone | WorkerOrdered | HealthReported | LoadSampled | MarkTold


def to_record(event: FleetEvent) -> dict[str, Any]:
    """The record of an event about a worker."""
    if isinstance(event, WorkerSeen):
        worker, engine = event.worker, event.worker.engine
        return {
            "event": "worker_seen",
            "id": worker.id,
            "url": worker.url,
            "incarnation": worker.incarnation,
            "models": {model: entry.decode() for model, entry in worker.models.items()},
            "engine": {
                "name": engine.name,
                "version": engine.version,
                "revision": engine.revision,
                "spec_decode": engine.spec_decode,
                "paths": sorted(engine.paths),
            },
            "address": worker.address,
        }
    if isinstance(event, WorkerGone):
        return {"event": "worker_gone", "id": event.worker_id, "incarnation": event.incarnation}
    if isinstance(event, WorkerOrdered):
        order = event.order
        record: dict[str, Any] = {"event": "worker_ordered", "id": event.worker_id, "order": None}
        if order is not None:
            record["order"] = [order.kind.value, order.reason, order.actor, order.until]
        return record
    if isinstance(event, HealthReported):
        return {
            "event": "health_reported",
            "id": event.worker_id,
            "incarnation": event.incarnation,
            "healthy": event.healthy,
            "reachable": event.reachable,
        }
    if isinstance(event, MarkTold):
        return {
            "event": "mark_told",
            "id": event.worker_id,
            "incarnation": event.incarnation,
            "reporter": event.reporter,
            "kind": event.kind.value,
            "number": event.number,
            "after_seq": event.after_seq,
            "until": event.until,
        }
    sample = event.sample
    return {
        "event": "load_sampled",
        "id": event.worker_id,
        "incarnation": event.incarnation,
        "taken_at": sample.taken_at,
        "running": sample.running,
        "waiting": sample.waiting,
        "own_in_flight": sample.own_in_flight,
        "kv_usage": sample.kv_usage,
        "seq": sample.seq,
        "stalled_s": sample.stalled_s,
        "is_asleep": sample.is_asleep,
    }


def to_event(record: Record) -> FleetEvent:
    """The event of a record; KeyError when it is not one."""
    return _READERS[record["event"]](record)


def _worker_seen(record: Record) -> WorkerSeen:
    models = {model: entry.encode() for model, entry in record["models"].items()}
    said = record["engine"]
    engine = Engine(said["name"], said["version"], said["revision"], said["spec_decode"], frozenset(said["paths"]))
    worker = Worker(record["id"], record["url"], record["incarnation"], models, engine, record["address"])
    return WorkerSeen(worker)


def _worker_gone(record: Record) -> WorkerGone:
    return WorkerGone(record["id"], record["incarnation"])


def _worker_ordered(record: Record) -> WorkerOrdered:
    order = record["order"]
    return WorkerOrdered(record["id"], Order(OrderKind(order[0]), *order[1:]) if order is not None else None)


def _health_reported(record: Record) -> HealthReported:
    return HealthReported(record["id"], record["incarnation"], record["healthy"], record["reachable"])


def _load_sampled(record: Record) -> LoadSampled:
    sample = LoadSample(
        record["taken_at"],
        record["running"],
        record["waiting"],
        record["own_in_flight"],
        record["kv_usage"],
        record["seq"],
        record["stalled_s"],
        record["is_asleep"],
    )
    return LoadSampled(record["id"], record["incarnation"], sample)


def _mark_told(record: Record) -> MarkTold:
    return MarkTold(
        record["id"],
        record["incarnation"],
        record["reporter"],
        MarkKind(record["kind"]),
        record["number"],
        record["after_seq"],
        record["until"],
    )


_READERS: dict[str, Callable[[Record], FleetEvent]] = {
    "worker_seen": _worker_seen,
    "worker_gone": _worker_gone,
    "worker_ordered": _worker_ordered,
    "health_reported": _health_reported,
    "load_sampled": _load_sampled,
    "mark_told": _mark_told,
}
