"""Background work is held, its failures are told, and it ends."""

import asyncio
import logging

import pytest

from app.runtime.tasks import Tasks
from tests.patience import patience


async def test_a_turn_that_fails_does_not_end_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    tasks = Tasks()
    turns: asyncio.Queue[int] = asyncio.Queue()

    async def work() -> None:
        turns.put_nowait(1)
        raise RuntimeError("every time")

    tasks.every(0.001, work, "work")
    async with patience():
        for _ in range(3):
            await turns.get()
    assert "background turn failed" in caplog.text
    await tasks.stop()


async def test_a_failure_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    tasks = Tasks()

    async def fail() -> None:
        raise RuntimeError("told")

    with caplog.at_level(logging.ERROR):
        await asyncio.wait([tasks.start(fail(), "failing")])
        await asyncio.sleep(0)
    assert "background task failed" in caplog.text
    await tasks.stop()


async def test_stop_waits_until_each_has_ended() -> None:
    tasks = Tasks()
    ended = []

    async def slow(name: str) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            ended.append(name)

    for name in ("a", "b"):
        tasks.start(slow(name), name)
    await asyncio.sleep(0)
    await tasks.stop()
    assert sorted(ended) == ["a", "b"]
