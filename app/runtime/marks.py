"""Marks against workers, between the serving processes of one gateway and between gateways.

Who makes a mark holds it at once. Its siblings are told without the store; other gateways read the store once a second.
Each gateway writes its own marks only, all of them each time, with the time that they have left: whoever reads late, or
twice, or after the store lost everything, knows the same once it has read.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from app.core.fleet.errors import StoreUnavailable
from app.core.fleet.events import MarkTold
from app.core.fleet.registry import GatewayMarks
from app.core.journal import to_event, to_record
from app.core.router import Router
from app.runtime.ports import MarkStore
from app.runtime.processes import Processes, Slot

log = logging.getLogger("warmset.marks")

SYNC_S = 1.0

LONGER_S = 0.5
"""A deadline that is read again differs by the time that reading took; only one that moved by more is news."""


class SharedMarks:
    """Of the control process. gateway: its name. clock: monotonic seconds."""

    def __init__(
        self, router: Router, store: MarkStore, processes: Processes, gateway: str, clock: Callable[[], float]
    ) -> None:
        self._router = router
        self._store = store
        self._processes = processes
        self._gateway = gateway
        self._clock = clock
        self._own: dict[tuple[str, str, str], MarkTold] = {}
        self._others: dict[tuple[str, str, str], MarkTold] = {}

    def made(self, slot: Slot, record: dict[str, Any]) -> None:
        """A serving process marked a worker."""
        event = to_event(record)
        assert isinstance(event, MarkTold)
        mark = replace(event, reporter=f"{self._gateway}#{slot.pid}")
        self._own[_name(mark)] = mark
        log.warning(
            "worker marked",
            extra={
                "worker": mark.worker_id,
                "mark": mark.kind.value,
                "for_s": round(mark.until - self._clock(), 3),
                "slot": slot.number,
            },
        )
        self._pass_on(mark, besides=slot)

    def greeting(self) -> list[dict[str, Any]]:
        """What a new serving process must know."""
        now = self._clock()
        marks = [*self._own.values(), *self._others.values()]
        return [{"kind": "fact", "record": to_record(mark)} for mark in marks if mark.until > now]

    async def sync(self) -> None:
        """One turn with the store: write ours, take in what is new of others'."""
        now = self._clock()
        for marks in (self._own, self._others):
            for name in [name for name, mark in marks.items() if mark.until <= now]:
                del marks[name]
        try:
            others = await self._store.exchange_marks(GatewayMarks(self._gateway, tuple(self._own.values())), now)
        except StoreUnavailable:
            return  # ours hold, and end, without it
        for gateway in others:
            if gateway.gateway != self._gateway:
                for mark in gateway.marks:
                    self._take(mark)

    def _take(self, mark: MarkTold) -> None:
        known = self._others.get(_name(mark))
        is_news = known is None or mark.number > known.number
        if known is not None and mark.number == known.number:
            is_news = mark.until > known.until + LONGER_S
        if is_news:
            self._others[_name(mark)] = mark
            self._pass_on(mark)

    def _pass_on(self, mark: MarkTold, *, besides: Slot | None = None) -> None:
        self._router.handle(mark, self._clock())
        self._processes.tell({"kind": "fact", "record": to_record(mark)}, besides=besides)


def _name(mark: MarkTold) -> tuple[str, str, str]:
    return mark.worker_id, mark.reporter, mark.kind.value
