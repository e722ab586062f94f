"""What all tests share."""

from collections.abc import Callable, Mapping

import pytest
import uvloop


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, Callable[[], uvloop.Loop]]:
    """The loop that production runs on: its transports and its timing differ from asyncio's own."""
    return {"uvloop": uvloop.new_event_loop}
