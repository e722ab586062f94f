"""Runs the pure engine on the wall clock and wakes whoever waits for its tokens.

One task alternates `schedule` and `complete` with a sleep of the step's duration in between. Deadlines follow each
other, so that a late wake-up is made good in the next step and the rate stays right.
"""

import asyncio
import time
from collections.abc import Sequence

from app.sim.engine import Engine, EngineRequest
from app.sim.worker.errors import ClientGone, busy, shutting_down
from app.sim.worker.observations import Observations

# A worker that was held up (a busy machine) does not race through what it missed beyond this.
MAX_LAG_S = 0.05


class Generation:
    """The engine requests of one client request, and its side of the waiting."""

    def __init__(self, driver: "EngineDriver", requests: Sequence[EngineRequest], *, streams: bool) -> None:
        self.requests = requests
        self.streams = streams
        self.gone = False
        self._driver = driver
        self._has_news = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def finished(self) -> bool:
        return all(request.finish_reason is not None for request in self.requests)

    def generated(self, request: EngineRequest) -> int:
        return self._driver.engine.generated(request)

    async def progress(self) -> None:
        """Wait until there is something new since the last call: a token when streaming, else a request's end."""
        if not self._has_news:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._has_news = False
        if self.gone:
            raise ClientGone

    async def end(self) -> None:
        """Wait until every request has finished."""
        while not self.finished:
            await self.progress()

    def wake(self) -> None:
        self._has_news = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def abandon(self) -> None:
        """The client went away: free the engine at once and unwind the waiting handler."""
        self.gone = True
        self._driver.drop(self)
        self.wake()


class EngineDriver:
    """The engine and the clock it runs on. `speed` divides durations; infinity never sleeps."""

    def __init__(self, engine: Engine, observations: Observations, speed: float) -> None:
        self.engine = engine
        self.closing = False
        self._observations = observations
        self._speed = speed
        self._live: dict[Generation, None] = {}
        self._work = asyncio.Event()

    def submit(self, requests: Sequence[EngineRequest], *, streams: bool) -> Generation:
        """Queue all of `requests` or none: 503 when the engine's queue limit refuses one of them."""
        if self.closing:
            raise shutting_down()
        generation = Generation(self, requests, streams=streams)
        now = time.monotonic()
        for request in requests:
            request.tag = generation
            if not self.engine.add(request, now):
                self.drop(generation)
                raise busy()
        self._live[generation] = None
        self._work.set()
        return generation

    def drop(self, generation: Generation) -> None:
        """Abort what is left of `generation` and forget it."""
        now = time.monotonic()
        for request in generation.requests:
            self.engine.abort(request, now)
        self._live.pop(generation, None)

    def close(self) -> None:
        """Take nothing new and end what runs with the reason "abort", so that its streams end properly."""
        self.closing = True
        now = time.monotonic()
        for generation in list(self._live):
            for request in generation.requests:
                if self.engine.abort(request, now):
                    self._observations.finished(request)
            self._live.pop(generation)
            generation.wake()

    async def run(self) -> None:
        """Step for ever; cancel it to stop."""
        engine, observations = self.engine, self._observations
        deadline = time.monotonic()
        while True:
            step = engine.schedule(time.monotonic())
            if step is None:
                self._work.clear()
                await self._work.wait()
                deadline = time.monotonic()
                continue
            deadline = max(deadline, time.monotonic() - MAX_LAG_S) + step.duration_s / self._speed
            # Also when there is no time to wait: others must get a turn after each step.
            await asyncio.sleep(max(0.0, deadline - time.monotonic()))
            outcome = engine.complete(time.monotonic())
            observations.step(outcome)
            for request in outcome.finished:
                generation = request.tag
                if isinstance(generation, Generation):
                    generation.wake()
                    if generation.finished:
                        self._live.pop(generation, None)
            for generation in self._live:
                if generation.streams:
                    generation.wake()
