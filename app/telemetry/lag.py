"""How late the event loop is: the drift of a short sleep, which every request suffers too."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

INTERVAL_S = 0.25

StartTask = Callable[[Coroutine[Any, Any, Any], str], Any]
"""Runs work in a task that somebody holds: `runtime.tasks.Tasks.start`."""


def start_lag_meter(
    start: StartTask,
    observe: Callable[[float], None],
    *,
    clock: Callable[[], float],
    interval_s: float = INTERVAL_S,
    sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
) -> None:
    """Until its task is cancelled, tell `observe` the seconds by which each sleep of `interval_s` was too long.

    A callback that blocks the loop is seen once, as long as it was beyond the end of the sleep that it falls into.
    """

    async def run() -> None:
        while True:
            began = clock()
            await sleep(interval_s)
            observe(max(0.0, clock() - began - interval_s))

    start(run(), "event loop lag")
