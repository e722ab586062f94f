"""The event loop's lag, on a clock of the test's own and once for real."""

import asyncio
import time

import pytest

from app.runtime.tasks import Tasks
from app.telemetry.lag import start_lag_meter
from tests.patience import eventually


async def test_drift_of_each_sleep() -> None:
    now = 0.0
    late = iter([0.0, 0.5, -0.01])
    seen: list[float] = []

    async def sleep(seconds: float) -> None:
        nonlocal now
        try:
            now += seconds + next(late)
        except StopIteration:
            raise asyncio.CancelledError from None

    tasks = Tasks()
    start_lag_meter(tasks.start, seen.append, clock=lambda: now, interval_s=0.25, sleep=sleep)
    await eventually(lambda: len(seen) == 3)
    await tasks.stop()
    assert seen == [0.0, pytest.approx(0.5), 0.0]


async def test_a_blocked_loop_is_seen() -> None:
    tasks = Tasks()
    seen: list[float] = []
    start_lag_meter(tasks.start, seen.append, clock=time.monotonic, interval_s=0.01)
    await asyncio.sleep(0.005)
    time.sleep(0.2)  # noqa: ASYNC251  the fault under test
    await eventually(lambda: max(seen, default=0) > 0.15)
    await tasks.stop()
