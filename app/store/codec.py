"""Values of the store <-> values of the core. What is in the store is input: everything is checked on reading.

    workers    {"until": ms or 0, "registration": {"v": 1, "id", "url", "incarnation", "source"}}
    orders     {"until": ms, "order": {"v": 1, "kind": "cordon", "drain", "force-in" or "none", "reason", "actor"}}
    processes  {"until": ms, "at": ms, "load": {"v": 1, "in_flight": {worker: n},
                "samples": {worker: [age_ms, running, waiting, own_in_flight, kv_usage or null]}}}
    usage      {"until": ms, "at": ms, "usage": {"v": 1, "processes": n, "scopes": {hash of the scope: [row, ...]}}}
    held       {"until": ms, "at": ms, "marks": {"v": 1, "held":
                [[worker, incarnation, reporter, kind, number, ms left], ...]}}

`until` and `at` are stamps of the server's clock, written by the scripts. `v` is the format: a reader skips a format
that it does not know and ignores members that it does not know, so a later version may add members under the same `v`.
"""

from math import ceil
from typing import Any

import orjson

from app.core.fleet.address import parse_worker_url
from app.core.fleet.address import worker_id as worker_id_of
from app.core.fleet.events import MarkTold
from app.core.fleet.load import LoadSample
from app.core.fleet.order import MOST_S, Order, OrderKind
from app.core.fleet.reasons import MarkKind
from app.core.fleet.registry import GatewayMarks, ProcessLoad, Registration, WorkerSource
from app.core.fleet.tenant import GatewayUsage

FORMAT = 1
MAX_REGISTRATION_BYTES = 8 * 1024
MAX_ORDER_BYTES = 8 * 1024
MAX_LOAD_BYTES = 1024 * 1024
MAX_USAGE_BYTES = 4 * 1024 * 1024
MAX_MARKS_BYTES = 4 * 1024 * 1024
MAX_MARK_MS = 400_000
"""Longer than any lease with its jitter."""
MAX_PROCESSES = 1024
ROW = 6
"""Numbers of a row, see core.tenants.demand."""
MAX_AMOUNT = 1e15
MAX_TEXT = 1024
"""Characters of an id, a URL or an incarnation."""
MAX_COUNT = 10**9


class Malformed(Exception):
    """A stored value that cannot be used. The text says why and quotes nothing of it."""


def encode_registration(registration: Registration) -> bytes:
    return orjson.dumps(
        {
            "v": FORMAT,
            "id": registration.id,
            "url": registration.url,
            "incarnation": registration.incarnation,
            "source": registration.source.value,
        }
    )


def decode_registration(worker_id: str, value: bytes) -> Registration:
    """Raises Malformed."""
    entry = _object(value, MAX_REGISTRATION_BYTES)
    fields = _format(entry.get("registration"))
    if fields.get("id") != worker_id:
        raise Malformed("it is another worker's")
    url = _text(fields, "url")
    try:
        is_canonical = parse_worker_url(url) == url
    except ValueError:
        raise Malformed("its url cannot be a worker's") from None
    if not is_canonical or worker_id_of(url) != worker_id:
        raise Malformed("its id does not follow from its url")
    try:
        source = WorkerSource(_text(fields, "source"))
    except ValueError:
        raise Malformed("its source is not known") from None
    return Registration(_text(fields, "id"), url, _text(fields, "incarnation"), source)


def encode_order(order: Order | None) -> bytes:
    """None: that there is none any more, which is a fact too."""
    if order is None:
        return orjson.dumps({"v": FORMAT, "kind": "none"})
    return orjson.dumps({"v": FORMAT, "kind": order.kind.value, "reason": order.reason, "actor": order.actor})


def decode_order(value: bytes, server_ms: int, now: float) -> Order | None:
    """`server_ms` is the server's clock and `now` the caller's, at the same moment. Raises Malformed."""
    entry = _object(value, MAX_ORDER_BYTES)
    fields = _format(entry.get("order"))
    if fields.get("kind") == "none":
        return None
    try:
        kind = OrderKind(_text(fields, "kind"))
    except ValueError:
        raise Malformed("its kind is not known") from None
    deadline = entry.get("until")
    if not isinstance(deadline, int) or isinstance(deadline, bool):
        raise Malformed("it has no end")
    left_s = min(max(0, deadline - server_ms) / 1000, MOST_S)
    return Order(kind, _text(fields, "reason"), _text(fields, "actor"), now + left_s)


def encode_load(load: ProcessLoad, now: float) -> bytes:
    """`now` is the clock that the samples were taken on; each is written as its age, in ms."""
    return orjson.dumps(
        {
            "v": FORMAT,
            "in_flight": load.in_flight,
            "samples": {
                worker: [
                    max(0, round((now - sample.taken_at) * 1000)),
                    sample.running,
                    sample.waiting,
                    sample.own_in_flight,
                    sample.kv_usage,
                ]
                for worker, sample in load.samples.items()
            },
        }
    )


def decode_load(process: str, value: bytes, server_ms: int, now: float) -> ProcessLoad:
    """`server_ms` is the server's clock and `now` the caller's, at the same moment. Raises Malformed.

    A sample is as old as it was when it was published, plus the time since then on the server's clock: no two hosts'
    clocks are compared.
    """
    entry = _object(value, MAX_LOAD_BYTES)
    published = entry.get("at")
    if not isinstance(published, int):
        raise Malformed("it has no time of publication")
    fields = _format(entry.get("load"))
    in_flight, samples = fields.get("in_flight"), fields.get("samples")
    if not isinstance(in_flight, dict) or not isinstance(samples, dict):
        raise Malformed("in_flight or samples is not an object")
    since_ms = max(0, server_ms - published)
    return ProcessLoad(
        process,
        {_worker(worker): _count(requests) for worker, requests in in_flight.items()},
        {_worker(worker): _sample(sample, since_ms, now) for worker, sample in samples.items()},
    )


def encode_usage(usage: GatewayUsage) -> bytes:
    """Scopes are written as they are given: the caller has hashed them, since they hold names of tenants."""
    scopes = {scope: [[round(number, 3) for number in row] for row in rows] for scope, rows in usage.scopes.items()}
    return orjson.dumps({"v": FORMAT, "processes": usage.processes, "scopes": scopes})


def decode_usage(gateway: str, value: bytes) -> GatewayUsage:
    """Raises Malformed."""
    fields = _format(_object(value, MAX_USAGE_BYTES).get("usage"))
    processes, scopes = fields.get("processes"), fields.get("scopes")
    if not isinstance(processes, int) or isinstance(processes, bool) or not 1 <= processes <= MAX_PROCESSES:
        raise Malformed("its number of processes is not one")
    if not isinstance(scopes, dict):
        raise Malformed("its scopes are not an object")
    return GatewayUsage(gateway, processes, {scope: _rows(rows, processes) for scope, rows in scopes.items()})


def encode_marks(marks: GatewayMarks, now: float) -> bytes:
    """Each is written with the ms that it has left at `now`, on the clock of its deadline."""
    held = [
        [mark.worker_id, mark.incarnation, mark.reporter, mark.kind.value, mark.number, _ms_left(mark, now)]
        for mark in marks.marks
    ]
    return orjson.dumps({"v": FORMAT, "held": held})


def life_of(marks: GatewayMarks, now: float) -> int:
    """Until the last of them is over, ms; 0 without any."""
    return max((_ms_left(mark, now) for mark in marks.marks), default=0)


def decode_marks(gateway: str, value: bytes, server_ms: int, now: float) -> GatewayMarks:
    """`server_ms` is the server's clock and `now` the caller's, at the same moment. Raises Malformed."""
    entry = _object(value, MAX_MARKS_BYTES)
    published = entry.get("at")
    if not isinstance(published, int):
        raise Malformed("it has no time of publication")
    held = _format(entry.get("marks")).get("held")
    if not isinstance(held, list):
        raise Malformed("its marks are not a list")
    since_ms = max(0, server_ms - published)
    marks = (_mark(mark, since_ms, now) for mark in held)
    return GatewayMarks(gateway, tuple(mark for mark in marks if mark is not None))


def _mark(value: Any, since_ms: int, now: float) -> MarkTold | None:
    """None for a kind that only a later version knows."""
    if not isinstance(value, list) or len(value) < 6:
        raise Malformed("a mark is not a list of six")
    worker, incarnation, reporter, kind, number, left_ms = value[:6]
    if not all(isinstance(text, str) and 0 < len(text) <= MAX_TEXT for text in (worker, incarnation, reporter)):
        raise Malformed("a mark's worker, incarnation or reporter is not a text")
    if kind not in set(MarkKind):
        return None
    left_s = min(_count(left_ms) - since_ms, MAX_MARK_MS) / 1000
    return MarkTold(worker, incarnation, reporter, MarkKind(kind), _count(number), -1, now + left_s)


def _ms_left(mark: MarkTold, now: float) -> int:
    return max(0, ceil((mark.until - now) * 1000))


def _rows(value: Any, processes: int) -> list[list[float]]:
    if not isinstance(value, list) or len(value) != processes:
        raise Malformed("a scope has not one row for each process")
    return [_row(row) for row in value]


def _row(value: Any) -> list[float]:
    if not isinstance(value, list) or len(value) < ROW:
        raise Malformed("a row is not a list of six")
    for number in value[:ROW]:
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if not is_number or not 0 <= number <= MAX_AMOUNT:
            raise Malformed("a number of a row is not an amount")
    return [float(number) for number in value[:ROW]]


def _sample(value: Any, since_ms: int, now: float) -> LoadSample:
    if not isinstance(value, list) or len(value) < 5:
        raise Malformed("a sample is not a list of five")
    age_ms, running, waiting, own, kv_usage = value[:5]
    if kv_usage is not None and not (
        isinstance(kv_usage, int | float) and not isinstance(kv_usage, bool) and 0 <= kv_usage <= 1
    ):
        raise Malformed("a kv_usage is not a share")
    age_s = (_count(age_ms) + since_ms) / 1000
    return LoadSample(
        now - age_s, _count(running), _count(waiting), _count(own), None if kv_usage is None else float(kv_usage)
    )


def _object(value: bytes, most: int) -> dict[str, Any]:
    if len(value) > most:
        raise Malformed(f"it is larger than {most} bytes")
    try:
        entry = orjson.loads(value)
    except orjson.JSONDecodeError:
        raise Malformed("it is not JSON") from None
    if not isinstance(entry, dict):
        raise Malformed("it is not an object")
    return entry


def _format(fields: Any) -> dict[str, Any]:
    if not isinstance(fields, dict):
        raise Malformed("it is not an object")
    if fields.get("v") != FORMAT:
        raise Malformed("its format is not known to this version")
    return fields


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT or not value.isprintable():
        raise Malformed(f"its {name} is not a printable text")
    return value


def _worker(value: str) -> str:
    if not 0 < len(value) <= MAX_TEXT:
        raise Malformed("a worker id is empty or too long")
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_COUNT:
        raise Malformed("a count is not a count")
    return value
