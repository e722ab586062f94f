"""A worker stays at the address that its name was checked and pinned to, and moves only when it is down there."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

import pytest

from app.core.fleet.allow import DestinationRules, parse_allow_list
from app.core.fleet.events import Event, HealthReported, LoadSampled, WorkerSeen
from app.core.fleet.registry import Registration, WorkerSource
from app.signals.fleet import FleetMonitor
from tests.fakes.tls import NAME, server_tls
from tests.patience import eventually
from tests.signals.scripted import Ear, Names, ScriptedWorker, page


@pytest.fixture
async def other(worker: ScriptedWorker) -> AsyncIterator[ScriptedWorker]:
    """At the same port of another address; its engine started before that of the first."""
    other = ScriptedWorker("127.0.0.2", worker.port)
    other.answers["/metrics"] = (200, page(start=50.0))
    other.answers["/v1/models"] = (200, b'{"object":"list","data":[{"id":"another"}]}')
    await other.start()
    yield other
    await other.stop()


def named(worker: ScriptedWorker, incarnation: str = "r1") -> Registration:
    return Registration("w", f"http://gpu-1:{worker.port}", incarnation, WorkerSource.ADMIN)


def is_healthy(event: Event) -> bool:
    return isinstance(event, HealthReported) and event.healthy


def is_ill(event: Event) -> bool:
    return isinstance(event, HealthReported) and not event.healthy


def served_at(address: str) -> Callable[[Event], bool]:
    return lambda event: isinstance(event, WorkerSeen) and event.worker.address == address and bool(event.worker.models)


async def test_a_worker_is_pinned_before_anything_is_known_of_it(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear, names: Names
) -> None:
    names.addresses["gpu-1"] = ["127.0.0.1"]
    fleet.watch(named(worker))
    await ear.hear(lambda event: isinstance(event, LoadSampled))
    seen = [event.worker for event in ear.of(WorkerSeen)]
    assert [(one.incarnation, one.address, list(one.models)) for one in seen] == [
        ("r1", "", []),
        ("r1@127.0.0.1", "127.0.0.1", []),
        ("r1.100.00@127.0.0.1", "127.0.0.1", ["m"]),
    ]
    assert {one.url for one in seen} == {f"http://gpu-1:{worker.port}"}
    assert all(f"host: gpu-1:{worker.port}\r\n" in head.lower() for head in worker.heads.values())
    assert fleet.address_problem("w") is None


async def test_a_name_that_comes_to_stand_for_another_address_moves_nothing(
    fleet: FleetMonitor, worker: ScriptedWorker, other: ScriptedWorker, ear: Ear, names: Names
) -> None:
    names.addresses["gpu-1"] = ["127.0.0.1"]
    fleet.watch(named(worker))
    await ear.hear(lambda event: isinstance(event, LoadSampled))
    asked = names.asked["gpu-1"]
    names.addresses["gpu-1"] = ["127.0.0.2"]
    for path in ("/health", "/metrics", "/v1/models"):
        await worker.asked_again(path, 2)
    worker.once_per_connection = True  # nor does a new connection
    await worker.asked_again("/health", 3)
    assert names.asked["gpu-1"] == asked
    assert not other.asked
    assert fleet.monitors["w"].worker.address == "127.0.0.1"


async def test_one_that_is_down_is_looked_for_and_found_as_another(
    fleet: FleetMonitor, worker: ScriptedWorker, other: ScriptedWorker, ear: Ear, names: Names
) -> None:
    names.addresses["gpu-1"] = ["127.0.0.1"]
    fleet.watch(named(worker))
    await ear.hear(lambda event: isinstance(event, LoadSampled))
    names.addresses["gpu-1"] = ["127.0.0.2"]
    ear.forget()
    await worker.stop()
    await ear.hear(lambda event: isinstance(event, LoadSampled) and event.incarnation == "r1.50.00@127.0.0.2")
    seen = [event.worker for event in ear.of(WorkerSeen)]
    assert [(one.incarnation, one.address, list(one.models)) for one in seen] == [
        ("r1@127.0.0.2", "127.0.0.2", []),
        ("r1.50.00@127.0.0.2", "127.0.0.2", ["another"]),
    ], "nothing that was known of the old one is kept, and an earlier start is no contradiction"
    # The old one comes back at its address, which is nobody's any more.
    worker.forget()
    await worker.start()
    await other.asked_again("/health", 2)
    await other.asked_again("/metrics", 2)
    assert not worker.asked
    assert fleet.monitors["w"].worker.address == "127.0.0.2"


async def test_the_old_address_is_left_also_when_nobody_answers_at_the_new_one(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear, names: Names
) -> None:
    names.addresses["gpu-1"] = ["127.0.0.1"]
    fleet.watch(named(worker))
    await ear.hear(lambda event: isinstance(event, LoadSampled))
    worker.answers["/health"] = (503, b"")
    await ear.hear(is_ill)
    ear.forget()
    names.addresses["gpu-1"] = ["127.0.0.2"]
    left = await ear.hear(lambda event: isinstance(event, WorkerSeen))
    assert isinstance(left, WorkerSeen)
    assert (left.worker.address, left.worker.models) == ("127.0.0.2", {}), "requests must not go there either"
    worker.forget()
    worker.answers["/health"] = (200, b"")
    ear.forget()
    await ear.hear(is_ill)
    assert not worker.asked
    names.addresses["gpu-1"] = ["127.0.0.1"]
    await ear.hear(served_at("127.0.0.1"))


async def test_a_name_that_comes_to_stand_for_a_forbidden_place_is_not_followed(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear, names: Names, caplog: pytest.LogCaptureFixture
) -> None:
    names.addresses["gpu-1"] = ["127.0.0.1"]
    fleet.watch(named(worker))
    await ear.hear(lambda event: isinstance(event, LoadSampled))
    names.addresses["gpu-1"] = ["169.254.169.254"]
    with caplog.at_level(logging.WARNING, "warmset.signals"):
        worker.answers["/health"] = (503, b"")
        await ear.hear(is_ill)
        await eventually(lambda: fleet.address_problem("w") is not None)
        await worker.asked_again("/health", 2)
    assert "169.254.169.254" in (fleet.address_problem("w") or "")
    assert sum("worker address" in record.message for record in caplog.records) == 1, "told once"
    worker.answers["/health"] = (200, b"")
    ear.forget()
    await ear.hear(is_healthy)
    assert fleet.monitors["w"].worker.address == "127.0.0.1"


async def test_a_name_server_that_is_gone_moves_nobody_and_stops_nobody(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear, names: Names
) -> None:
    names.addresses["gpu-1"] = ["127.0.0.1"]
    fleet.watch(named(worker))
    await ear.hear(lambda event: isinstance(event, LoadSampled))
    names.addresses.clear()
    await worker.stop()
    await eventually(lambda: fleet.address_problem("w") is not None)
    await worker.start()
    ear.forget()
    await ear.hear(is_healthy)
    assert not ear.of(WorkerSeen)
    assert fleet.address_problem("w"), "as it was when it was looked up last"


@pytest.mark.parametrize("addresses", [["169.254.169.254"], ["127.0.0.1", "100.100.100.200"], None])
async def test_a_name_that_leads_nowhere_that_is_allowed_is_never_contacted(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear, names: Names, addresses: list[str] | None
) -> None:
    if addresses is not None:
        names.addresses["gpu-1"] = addresses
    fleet.watch(named(worker))
    await eventually(lambda: len(ear.of(HealthReported)) >= 2)
    assert {(event.healthy, event.reachable) for event in ear.of(HealthReported)} == {(False, False)}
    assert {event.worker.address for event in ear.of(WorkerSeen)} == {""}
    assert fleet.address_problem("w")
    assert not worker.connections
    names.addresses["gpu-1"] = ["127.0.0.1"]
    await ear.hear(served_at("127.0.0.1"))


RULES = DestinationRules(parse_allow_list(["127.0.0.2", "gpu-*:1-65535"]))


@pytest.mark.parametrize("rules", [RULES], indirect=True)
async def test_an_address_outside_of_the_list_is_never_contacted(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear
) -> None:
    fleet.watch(Registration("w", worker.url, "r1", WorkerSource.ADMIN))
    await eventually(lambda: len(ear.of(HealthReported)) >= 2)
    assert not worker.connections
    assert "worker_url_allow" in (fleet.address_problem("w") or "")


async def test_the_first_address_that_takes_a_connection_is_it(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear, names: Names
) -> None:
    # As for `localhost`, where a name has an address that the engine does not listen on.
    names.addresses["gpu-1"] = ["::1", "127.0.0.3", "127.0.0.1"]
    fleet.watch(named(worker))
    await ear.hear(is_healthy)
    assert not [event for event in ear.events if is_ill(event)], "and no probe is failed by that"
    assert fleet.monitors["w"].worker.address == "127.0.0.1"
    names.addresses["gpu-1"] = ["127.0.0.3", "127.0.0.1"]
    worker.answers["/health"] = (503, b"")
    await ear.hear(is_ill)
    asked = names.asked["gpu-1"]
    await eventually(lambda: names.asked["gpu-1"] > asked + 1)
    assert fleet.monitors["w"].worker.address == "127.0.0.1", "the one that it has is kept while it takes connections"


async def test_of_many_addresses_each_gets_its_turn(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear, names: Names
) -> None:
    names.addresses["gpu-1"] = [*(f"127.0.1.{number}" for number in range(1, 8)), "127.0.0.1"]
    fleet.watch(named(worker))
    await ear.hear(served_at("127.0.0.1"))
    assert len([event for event in ear.events if is_ill(event)]) == 1


async def test_a_look_up_that_hangs_holds_up_no_worker_that_is_well(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear, names: Names
) -> None:
    names.addresses["gpu-1"] = ["127.0.0.1"]
    fleet.watch(named(worker))
    await ear.hear(lambda event: isinstance(event, LoadSampled))
    names.silent.update(("gpu-1", "gpu-2"))
    fleet.watch(Registration("v", f"http://gpu-2:{worker.port}", "r1", WorkerSource.ADMIN))
    await worker.asked_again("/health", 3)
    names.silence.set()
    names.addresses["gpu-2"] = ["127.0.0.1"]


async def test_forgotten_in_the_middle_of_looking(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear, names: Names
) -> None:
    names.addresses["gpu-1"] = ["127.0.0.3", "127.0.0.1"]
    worker.answers["/health"] = None
    fleet.watch(named(worker))
    await eventually(lambda: worker.asked["/health"] > 0)
    fleet.forget("w")
    ear.forget()
    await asyncio.sleep(0.1)
    assert not ear.events


async def test_with_tls_the_certificate_is_the_names(fleet: FleetMonitor, ear: Ear, names: Names) -> None:
    asked: list[str | None] = []
    worker = ScriptedWorker(tls=server_tls(asked))
    await worker.start()
    names.addresses |= {NAME: ["127.0.0.1"], "other.test": ["127.0.0.1"]}
    fleet.watch(Registration("w", f"https://{NAME}:{worker.port}", "r1", WorkerSource.ADMIN))
    await ear.hear(lambda event: isinstance(event, LoadSampled))
    assert set(asked) == {NAME}
    for name in ("other.test", "127.0.0.1"):
        ear.forget()
        fleet.watch(Registration("v", f"https://{name}:{worker.port}", name, WorkerSource.ADMIN))
        await ear.hear(lambda event: is_ill(event) and isinstance(event, HealthReported) and event.worker_id == "v")
        assert not [event for event in ear.events if is_healthy(event) and event.worker_id == "v"]  # type: ignore[union-attr]
    await worker.stop()
