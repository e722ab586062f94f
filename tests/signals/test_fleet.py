"""Which workers are watched, and what is told when that changes."""

import asyncio
import time
from dataclasses import replace

from app.core.fleet.events import HealthReported, LoadSampled, WorkerGone, WorkerSeen
from app.core.fleet.registry import Registration, WorkerSource
from app.signals.fleet import FleetMonitor
from tests.patience import eventually
from tests.signals.scripted import Ear, ScriptedWorker


def registration(worker: ScriptedWorker, name: str = "w", incarnation: str = "r1") -> Registration:
    return Registration(name, worker.url, incarnation, WorkerSource.CONFIG)


async def test_the_registered_are_watched_and_no_others(fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear) -> None:
    fleet.follow([registration(worker, "a"), registration(worker, "b")])
    await ear.hear(lambda event: isinstance(event, LoadSampled) and event.worker_id == "b")
    fleet.follow([registration(worker, "b"), registration(worker, "c")])
    assert list(fleet.monitors) == ["b", "c"]
    gone = ear.of(WorkerGone)
    assert [event.worker_id for event in gone] == ["a"]
    ear.forget()
    await ear.hear(lambda event: isinstance(event, LoadSampled) and event.worker_id == "c")
    assert not [event for event in ear.of(LoadSampled) if event.worker_id == "a"]


async def test_a_registration_that_is_renewed_disturbs_nothing(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear
) -> None:
    fleet.follow([registration(worker)])
    await ear.hear(lambda event: isinstance(event, LoadSampled))
    monitor = fleet.monitors["w"]
    ear.forget()
    for _ in range(3):
        fleet.follow([registration(worker)])
    assert fleet.monitors["w"] is monitor
    assert not ear.of(WorkerSeen)


async def test_one_that_another_registered_first_is_renamed_and_not_disturbed(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear
) -> None:
    fleet.watch(registration(worker))
    await ear.hear(lambda event: isinstance(event, LoadSampled))
    connections = worker.connections
    before = fleet.monitors["w"].worker
    ear.forget()
    fleet.rename(registration(worker, incarnation="r9"))
    seen, report = ear.events[:2]
    assert isinstance(seen, WorkerSeen)
    assert seen == WorkerSeen(replace(before, incarnation=before.incarnation.replace("r1", "r9")))
    assert report == HealthReported("w", seen.worker.incarnation, healthy=True)
    sampled = await ear.hear(lambda event: isinstance(event, LoadSampled))
    assert isinstance(sampled, LoadSampled)
    assert (sampled.incarnation, sampled.sample.seq) == (seen.worker.incarnation, 1)
    assert worker.connections == connections


async def test_a_new_registration_begins_anew_without_a_gap(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear
) -> None:
    fleet.watch(registration(worker))
    await ear.hear(lambda event: isinstance(event, LoadSampled))
    ear.forget()
    fleet.watch(registration(worker, incarnation="r2"))
    reported = await ear.hear(lambda event: isinstance(event, HealthReported) and event.healthy)
    assert isinstance(reported, HealthReported)
    assert reported.incarnation == "r2.100.00"
    assert not ear.of(WorkerGone)
    await asyncio.sleep(0.1)
    facts = [event for event in ear.events if isinstance(event, HealthReported | LoadSampled)]
    assert {event.incarnation for event in facts} == {"r2.100.00"}


async def test_nothing_is_told_of_a_worker_that_is_gone(fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear) -> None:
    fleet.watch(registration(worker))
    await ear.hear(lambda event: isinstance(event, LoadSampled))
    await worker.hold("/metrics")
    fleet.forget("w")
    fleet.forget("w")
    assert len(ear.of(WorkerGone)) == 1
    ear.forget()
    worker.forget()
    worker.let_go()
    await asyncio.sleep(0.3)
    assert not ear.events
    assert sum(worker.asked.values()) <= 1, "a probe that was on its way"


async def test_a_fleet_is_asked_one_after_the_other(fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear) -> None:
    worker.answers["/health"] = (503, b"")  # so that nothing but first probes is asked
    fleet.follow([registration(worker, f"w{number}") for number in range(100)])
    begun = time.monotonic()
    await eventually(lambda: worker.asked["/health"] >= 1)
    await eventually(lambda: len({event.worker_id for event in ear.of(HealthReported)}) == 100)
    assert time.monotonic() - begun > 0.2


async def test_stop_ends_all_and_tells_nobody(fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear) -> None:
    worker.answers["/health"] = None
    fleet.follow([registration(worker, name) for name in "abc"])
    await asyncio.sleep(0.05)
    ear.forget()
    await fleet.stop()
    await fleet.stop()
    assert not ear.events
    assert not fleet.monitors
