"""One scripted worker and a fleet monitor that has nobody to watch yet."""

import random
import ssl
import time
from collections.abc import AsyncIterator

import pytest

from app.core.fleet.allow import DestinationRules
from app.runtime.tasks import Tasks
from app.signals.control import tls_context
from app.signals.destinations import Destinations
from app.signals.fleet import FleetMonitor
from app.signals.monitor import MonitorContext, MonitorSettings
from tests.fakes.tls import CERTIFICATE
from tests.signals.scripted import SETTINGS, Ear, Names, ScriptedWorker


@pytest.fixture
async def worker() -> AsyncIterator[ScriptedWorker]:
    worker = ScriptedWorker()
    await worker.start()
    yield worker
    await worker.stop()


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
def names() -> Names:
    return Names()


@pytest.fixture
def rules(request: pytest.FixtureRequest) -> DestinationRules:
    """What a test asks for by indirect parametrisation."""
    return getattr(request, "param", DestinationRules())


@pytest.fixture(scope="session")
def tls() -> ssl.SSLContext:
    return tls_context(CERTIFICATE)


@pytest.fixture
def settings() -> MonitorSettings:
    """A test that needs others is parametrised with them: `with_settings`."""
    return SETTINGS


@pytest.fixture
async def fleet(
    ear: Ear, names: Names, rules: DestinationRules, tls: ssl.SSLContext, settings: MonitorSettings
) -> AsyncIterator[FleetMonitor]:
    tasks = Tasks()
    context = MonitorContext(
        destinations=Destinations(rules, start=tasks.start, lookup=names.look_up),
        tls=tls,
        settings=settings,
        emit=lambda event: ear.events.append(event),
        own_in_flight=lambda worker_id: ear.in_flight.get(worker_id, 0),
        start=tasks.start,
        clock=time.monotonic,
        rng=random.Random(5),
    )
    fleet = FleetMonitor(context)
    yield fleet
    await fleet.stop()
    await tasks.stop()
