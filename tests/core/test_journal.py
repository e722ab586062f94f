"""Events survive the way through JSON."""

import json

import pytest

from app.core.fleet.engine import Engine
from app.core.fleet.events import HealthReported, LoadSampled, WorkerGone, WorkerSeen
from app.core.fleet.load import LoadSample
from app.core.fleet.worker import Worker
from app.core.journal import FleetEvent, to_event, to_record
from tests.core.script import ordered

ENGINE = Engine("vllm", "0.32.0", "abc", False, frozenset({"/pooling", "/classify"}))
EVENTS: list[FleetEvent] = [
    WorkerSeen(Worker("w", "http://w:1", "i.1", {"m": b'{"id":"m"}', "n\u00e9": b"{}"}, ENGINE, "10.0.0.7")),
    WorkerSeen(Worker("w", "http://w:1", "i.1")),
    WorkerGone("w", "i.1"),
    ordered("w", until=99.5),
    ordered("w", None),
    HealthReported("w", "i.1", healthy=True),
    HealthReported("w", "i.1", healthy=False, reachable=False),
    LoadSampled("w", "i.1", LoadSample(12.5, 3, 4, 2, 0.25)),
    LoadSampled("w", "i.1", LoadSample(12.5, 3, 4, 2)),
    LoadSampled("w", "i.1", LoadSample(12.5, 3, 4, 2, None, 9, 61.5, True)),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_there_and_back(event: FleetEvent) -> None:
    assert to_event(json.loads(json.dumps(to_record(event)))) == event


def test_what_is_no_event_is_refused() -> None:
    with pytest.raises(KeyError):
        to_event({"event": "nonsense"})
