"""What all tests share."""

from collections.abc import Callable, Mapping

import pytest
import uvloop
from hypothesis import HealthCheck, settings

from tests.patience import make_httpx_patient

# Limits of its own on how long an example may take would make a slow machine a failure.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

make_httpx_patient()


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, Callable[[], uvloop.Loop]]:
    """The loop that production runs on: its transports and its timing differ from asyncio's own."""
    return {"uvloop": uvloop.new_event_loop}
