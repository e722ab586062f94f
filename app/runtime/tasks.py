"""Background tasks that are held, supervised and ended.

asyncio keeps only a weak reference to a task and reports its failure when it is collected, if ever. Every task of the
project is therefore made here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

log = logging.getLogger("warmset.tasks")


class Tasks:
    """A set of running tasks with one owner."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run `work`; an exception that leaves it is logged at once."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def every(self, interval_s: float, work: Callable[[], Awaitable[None]], name: str) -> asyncio.Task[Any]:
        """Run `work` again and again, `interval_s` after each end. A turn that fails is logged; the next one runs."""

        async def loop() -> None:
            while True:
                try:
                    await work()
                except Exception:
                    log.exception("background turn failed", extra={"task": name})
                await asyncio.sleep(interval_s)

        return self.start(loop(), name)

    async def stop(self) -> None:
        """Cancel all and wait until each has ended."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("background task failed", exc_info=task.exception(), extra={"task": task.get_name()})
