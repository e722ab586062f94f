"""Control traffic to one worker, held to one address of its name.

A name is looked up when its worker is added, and then only after a probe of it failed. In between it may come to stand
for whatever it likes: probes, scrapes and requests go where they went. That a worker was moved is thus seen at the
first failed probe, and a name alone moves no worker that is well.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from app.core.fleet.errors import DestinationRefused, NameUnknown
from app.signals.control import NoReply, Reply, StartTask, WorkerControl
from app.signals.destinations import Destinations

TRIED = 4
"""Addresses of a name that one probe connects to at most."""


class PinnedControl:
    """GETs on one worker. address: where they go, "" before the first look-up. problem: why the last look-up was of no
    use, or None. make: the control traffic to an address. limit_s: after which a probe begins with no further address.
    """

    def __init__(
        self,
        url: str,
        destinations: Destinations,
        make: Callable[[str], WorkerControl],
        *,
        start: StartTask,
        clock: Callable[[], float],
        limit_s: float,
    ) -> None:
        self.address = ""
        self.problem: str | None = None
        self._url = url
        self._destinations = destinations
        self._make = make
        self._start = start
        self._clock = clock
        self._limit_s = limit_s
        self._pinned: WorkerControl | None = None
        self._open: dict[WorkerControl, None] = {}
        self._misses: dict[str, int] = {}

    async def get(self, path: str) -> Reply:
        """From where it is pinned. Raises NoReply."""
        if self._pinned is None:
            raise NoReply(self.problem or "its name was not looked up yet", reachable=False)
        return await self._pinned.get(path)

    async def seek(self, path: str) -> Reply:
        """Look the name up, and GET from the first of its addresses that takes a connection, which is the pin then.

        The pin itself comes first while it is one of them. A look-up that fails, or that leads where no worker may be,
        leaves the pin as it was. When no address takes a connection, the pin is one of them all the same: what the name
        stood for before may be another's by now. Raises NoReply.
        """
        try:
            found = await self._destinations.addresses(self._url)
            self.problem = None
        except (DestinationRefused, NameUnknown) as error:
            self.problem = str(error)
            return await self.get(path)
        self._misses = {address: self._misses.get(address, 0) for address in found}
        order = sorted(found, key=lambda address: (self._misses[address], address != self.address))
        begun = self._clock()
        failure = NoReply("no address", reachable=False)
        for address in order[:TRIED]:
            control = self._pinned if address == self.address else None
            control = control or self._new(address)
            try:
                reply = await control.get(path)
            except NoReply as no_reply:
                failure = no_reply
                if no_reply.reachable:
                    self._pin(address, control)
                    break
                self._misses[address] += 1
                if control is not self._pinned:
                    self._retire(control)
            else:
                self._pin(address, control)
                return reply
            if self._clock() - begun >= self._limit_s:
                break
        # Nothing is awaited from a pin to the end: nobody may use it before its monitor knows.
        if self.address not in found:
            self._pin(order[0], self._new(order[0]))
        raise failure

    async def close(self) -> None:
        """Close all connections. Nothing may be asked any more."""
        await asyncio.gather(*(self._close(control) for control in list(self._open)))

    def _new(self, address: str) -> WorkerControl:
        control = self._make(address)
        self._open[control] = None
        return control

    def _pin(self, address: str, control: WorkerControl) -> None:
        if control is self._pinned:
            return
        before, self._pinned, self.address = self._pinned, control, address
        if before is not None:
            self._retire(before)

    def _retire(self, control: WorkerControl) -> "asyncio.Task[Any]":
        return self._start(self._close(control), f"leave an address of {self._url}")

    async def _close(self, control: WorkerControl) -> None:
        await control.close()
        self._open.pop(control, None)
