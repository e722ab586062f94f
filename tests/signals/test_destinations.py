"""Names of workers: looked up in one place, and checked there."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from app.core.fleet.allow import DestinationRules, parse_allow_list
from app.core.fleet.errors import DestinationRefused, NameUnknown
from app.runtime.tasks import Tasks
from app.signals import destinations as module
from app.signals.destinations import MAX_ADDRESSES, Destinations, look_up
from tests.signals.scripted import Names

URL = "http://gpu-1:8000"


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    tasks = Tasks()
    yield tasks
    await tasks.stop()


@pytest.fixture
def destinations(names: Names, rules: DestinationRules, tasks: Tasks) -> Destinations:
    return Destinations(rules, start=tasks.start, lookup=names.look_up)


async def test_a_name_is_what_it_stands_for_each_once(destinations: Destinations, names: Names) -> None:
    names.addresses["gpu-1"] = ["10.0.0.2", "10.0.0.1", "10.0.0.2"]
    assert await destinations.addresses(URL) == ("10.0.0.2", "10.0.0.1")
    assert await destinations.addresses("http://10.0.0.9:80") == ("10.0.0.9",)
    assert names.asked == {"gpu-1": 1}, "an address is not looked up"


@pytest.mark.parametrize(
    "addresses",
    [
        ["169.254.169.254"],
        ["10.0.0.1", "169.254.169.254"],
        ["::ffff:169.254.169.254"],
        ["fe80::1%eth0"],
        ["0.0.0.0"],
        ["fd00:ec2::254", "10.0.0.1"],
    ],
)
async def test_a_name_that_leads_to_a_forbidden_place_is_refused(
    destinations: Destinations, names: Names, addresses: list[str]
) -> None:
    names.addresses["gpu-1"] = addresses
    assert destinations.refusal(URL) is None, "not before it is looked up"
    with pytest.raises(DestinationRefused, match="worker_urls"):
        await destinations.addresses(URL)


@pytest.mark.parametrize("rules", [DestinationRules(parse_allow_list(["10.0.0.0/8", "*.llm.svc"]))], indirect=True)
async def test_the_operators_list_holds_for_every_address(destinations: Destinations, names: Names) -> None:
    names.addresses |= {"gpu-1": ["10.0.0.1", "11.0.0.1"], "a.llm.svc": ["11.0.0.1"]}
    with pytest.raises(DestinationRefused, match=r"10\.0\.0\.1, 11\.0\.0\.1 is not in worker_url_allow"):
        await destinations.addresses(URL)
    assert await destinations.addresses("http://a.llm.svc:80") == ("11.0.0.1",)
    assert names.asked == {"gpu-1": 1, "a.llm.svc": 1}


@pytest.mark.parametrize("rules", [DestinationRules(parse_allow_list(["gpu-*:8000"]))], indirect=True)
async def test_what_no_address_could_make_right_is_not_looked_up(destinations: Destinations, names: Names) -> None:
    for url in ("http://gpu-1:22", "http://cpu-1:8000", "http://169.254.169.254:80", "http://gpu-1:8000/path"):
        assert destinations.refusal(url)
        with pytest.raises(DestinationRefused):
            await destinations.addresses(url)
    assert not names.asked


@pytest.mark.parametrize("rules", [DestinationRules(configured=frozenset(["http://gpu-1:8000"]))], indirect=True)
async def test_the_configuration_may_name_any_place(destinations: Destinations, names: Names) -> None:
    names.addresses["gpu-1"] = ["169.254.1.5"]
    assert await destinations.addresses(URL) == ("169.254.1.5",)
    with pytest.raises(DestinationRefused):
        await destinations.addresses("http://gpu-1:8001")


async def test_a_name_that_nobody_knows(destinations: Destinations, names: Names) -> None:
    with pytest.raises(NameUnknown, match="gpu-1 cannot be looked up: Name or service not known"):
        await destinations.addresses(URL)
    for addresses in ([], [f"10.0.{number // 250}.{number % 250}" for number in range(MAX_ADDRESSES + 1)]):
        names.addresses["gpu-1"] = addresses
        with pytest.raises(NameUnknown, match=f"{len(addresses)} addresses"):
            await destinations.addresses(URL)


async def test_a_look_up_that_hangs_is_waited_for_briefly_and_asked_once(
    destinations: Destinations, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOKUP_S", 0.05)
    names.addresses |= {"gpu-1": ["10.0.0.1"], "gpu-2": ["10.0.0.2"]}
    names.silent.add("gpu-1")
    for _ in range(3):
        with pytest.raises(NameUnknown, match="not answered in time"):
            await destinations.addresses(URL)
    assert names.asked == {"gpu-1": 1}
    assert await destinations.addresses("http://gpu-2:80") == ("10.0.0.2",), "it holds up no other name"
    monkeypatch.setattr(module, "LOOKUP_S", 5.0)
    names.silence.set()
    assert await destinations.addresses(URL) == ("10.0.0.1",)
    names.silent.clear()
    assert await destinations.addresses(URL) == ("10.0.0.1",)


async def test_who_waits_and_leaves_does_not_end_the_look_up_of_another(
    destinations: Destinations, names: Names
) -> None:
    names.addresses["gpu-1"] = ["10.0.0.1"]
    names.silent.add("gpu-1")
    first = asyncio.ensure_future(destinations.addresses(URL))
    second = asyncio.ensure_future(destinations.addresses(URL))
    await asyncio.sleep(0.01)
    first.cancel()
    names.silence.set()
    assert await second == ("10.0.0.1",)
    assert first.cancelled()


async def test_the_systems_own_look_up() -> None:
    assert set(await look_up("localhost")) <= {"127.0.0.1", "::1"}
    with pytest.raises(socket.gaierror):
        await look_up("nobody.invalid")
    with pytest.raises(UnicodeError):
        await look_up("x" * 64 + ".invalid")
