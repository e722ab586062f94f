"""Takes part in the election of the gateway that plans for all on one store."""

import logging
from collections.abc import Callable
from typing import Any

from app.core.fleet.errors import StoreUnavailable
from app.core.lease import Lease
from app.runtime.ports import LeaderStore

log = logging.getLogger("warmset.leader")


class Leader:
    """One per gateway. name: of it. clock: monotonic seconds."""

    def __init__(self, store: LeaderStore, name: str, clock: Callable[[], float]) -> None:
        self._store = store
        self._name = name
        self._clock = clock
        self._lease = Lease(name)
        self._told = ""
        self._is_over = False

    def leads(self) -> bool:
        """Whether this gateway does at this moment. Ends by the clock, so ask again after anything that takes time."""
        return self._lease.leads(self._clock())

    @property
    def epoch(self) -> int:
        """Of its own leadership; 0 while it never led."""
        return self._lease.epoch

    async def campaign(self) -> None:
        """One turn: renew the lease, or ask for it."""
        if self._is_over:
            return
        began = self._clock()
        try:
            election = await self._store.campaign(self._name, self._lease.known_epoch)
        except StoreUnavailable:
            return  # who leads goes on until its lease may be over
        self._lease.answered(election, began)
        if election.leader != self._told:
            self._told = election.leader
            log.info("leader changed", extra={"leader": election.leader, "epoch": election.epoch})

    async def resign(self) -> None:
        """Lead no more, and have another one begin at once. Without the store it begins when the lease is over."""
        self._is_over = True
        leads, epoch = self.leads(), self._lease.epoch
        self._lease.stop()
        if leads:
            try:
                await self._store.resign(self._name, epoch)
            except StoreUnavailable:
                return

    def describe(self) -> dict[str, Any]:
        """Ready for JSON. leader: as the store last said; None before it did."""
        return {
            "leader": self._lease.leader or None,
            "leads": self.leads(),
            "epoch": self._lease.known_epoch,
        }
