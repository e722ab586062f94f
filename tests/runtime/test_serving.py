"""A serving process under the control process's messages."""

from typing import Any

from app.core.fleet.events import HealthReported, LoadSampled, WorkerSeen
from app.core.fleet.load import LoadSample
from app.core.journal import to_record
from app.runtime.gateway import Gateway
from app.runtime.serving import Serving
from tests.core.script import Script, worker


class Rig:
    def __init__(self) -> None:
        self.script = Script()
        self.told: list[dict[str, Any]] = []

        def clock() -> float:
            self.script.now += 0.001
            return self.script.now

        self.gateway = Gateway(self.script.router, None, None, clock)  # type: ignore[arg-type]
        self.serving = Serving(self.gateway, self.told.append, lambda: [["family"]])

    def fact(self, event: Any) -> None:
        self.serving.take({"kind": "fact", "record": to_record(event)})


async def test_facts_become_events() -> None:
    rig = Rig()
    rig.fact(WorkerSeen(worker("a", "m")))
    rig.fact(HealthReported("a", "1", healthy=True))
    assert rig.script.dispatched().worker.id == "a"


async def test_a_sample_counts_what_was_in_flight_when_it_was_taken() -> None:
    rig = Rig()
    rig.fact(WorkerSeen(worker("a", "m")))
    rig.fact(HealthReported("a", "1", healthy=True))
    rig.script.dispatched()
    rig.serving.take({"kind": "sampling", "worker": "a"})
    rig.script.dispatched()
    rig.fact(LoadSampled("a", "1", LoadSample(rig.script.now, 5, 0, 99)))
    assert rig.script.load("a") == 6, "5 of the engine's, one of them ours, and one since"


async def test_reports_and_snapshots() -> None:
    rig = Rig()
    rig.fact(WorkerSeen(worker("a", "m")))
    rig.script.dispatched()
    await rig.serving.report()
    rig.serving.take({"kind": "snapshot", "number": 7})
    rig.serving.take({"kind": "settle", "number": 8})
    assert rig.told == [
        {"kind": "report", "open_requests": 1, "in_flight": {"a": 1}, "waiting": {}},
        {"kind": "snapshot", "number": 7, "families": [["family"]]},
        {"kind": "settle", "number": 8},
    ]


async def test_stop_cut_and_a_control_process_that_is_gone() -> None:
    rig = Rig()
    rig.serving.take({"kind": "stop"})
    assert rig.serving.stop.done()
    assert not rig.serving.cut.done()
    rig.serving.take({"kind": "cut"})
    rig.serving.take({"kind": "cut"})
    assert rig.serving.cut.done()
    orphan = Rig()
    orphan.serving.lost()
    assert orphan.serving.stop.done()
    assert orphan.serving.cut.done()


async def test_a_connect_failure_asks_the_control_process_for_a_probe() -> None:
    rig = Rig()
    rig.gateway._probe_now("a")
    assert rig.told == [{"kind": "probe", "worker": "a"}]
