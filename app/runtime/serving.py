"""A serving process, as it takes part in the whole: facts in, reports out.

It probes and scrapes nobody and never asks the store: what is known of workers comes from the control process as
events. It decides with a router of its own, on those facts and on what it dispatched itself.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from app.core.fleet.events import LoadSampled
from app.core.journal import to_event, to_record
from app.core.tenants.admission import Admission
from app.core.tenants.keyring import Keyring
from app.core.tenants.records import keys_from_record
from app.core.tenants.shares import Share
from app.runtime.channel import Message
from app.runtime.gateway import Gateway

REPORT_S = 1.0
"""How often a serving process says that it is there, and what it has in flight."""


class Tenants:
    """What a serving process knows of tenants: their keys and limits, and its shares of the latter."""

    def __init__(self, ring: Keyring, admission: Admission, clock: Callable[[], float]) -> None:
        self._ring = ring
        self._admission = admission
        self._clock = clock
        self.known: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the keys are there; who serves before refuses them all."""

    def take(self, message: Message) -> None:
        """Other keys, or other shares. A request under way keeps the grant that it came with."""
        now = self._clock()
        if message["kind"] == "keys":
            keys = keys_from_record(message["record"])
            self._ring.replace(keys.grants)
            self._admission.replace(keys, now)
            _finish(self.known)
        else:
            shares: dict[str, Share] = {scope: tuple(share) for scope, share in message["scopes"].items()}
            self._admission.set_shares(shares, message["parts"], message["place"], now)

    def report(self) -> dict[str, list[float]]:
        return self._admission.report()


class Serving:
    """Applies the control process's messages to a gateway, and answers them.

    tell: sends to the control process. snapshot: the metrics as plain data.
    tenants: takes what is told of tenants. stop: done when told to end, cut: when told to end at once.
    """

    def __init__(
        self,
        gateway: Gateway,
        tell: Callable[[Message], None],
        snapshot: Callable[[], list[Any]],
        tenants: Tenants | None = None,
    ) -> None:
        self._gateway = gateway
        self._tenants = tenants
        self._tell = tell
        self._snapshot = snapshot
        self._marks: dict[str, int] = {}
        loop = asyncio.get_running_loop()
        self.stop: asyncio.Future[None] = loop.create_future()
        self.cut: asyncio.Future[None] = loop.create_future()
        gateway.on_probe(lambda worker: tell({"kind": "probe", "worker": worker}))
        gateway.on_mark(lambda mark: tell({"kind": "mark", "record": to_record(mark)}))

    def take(self, message: Message) -> None:
        """One message of the control process."""
        kind = message["kind"]
        if kind == "fact":
            self._take_fact(message["record"])
        elif kind == "sampling":
            # The engine is being asked just now: what we have in flight at this moment is part of its answer.
            state = self._gateway.router.workers.get(message["worker"])
            self._marks[message["worker"]] = state.in_flight if state is not None else 0
        elif kind == "snapshot":
            self._tell({"kind": "snapshot", "number": message["number"], "families": self._snapshot()})
        elif kind == "settle":
            self._tell(message)
        elif kind in ("keys", "shares") and self._tenants is not None:
            self._tenants.take(message)
        elif kind == "stop":
            _finish(self.stop)
        elif kind == "cut":
            _finish(self.stop)
            _finish(self.cut)

    def lost(self) -> None:
        """The control process is gone, and nobody would ever tell us to end."""
        _finish(self.stop)
        _finish(self.cut)

    async def report(self) -> None:
        """One turn: what we have in flight, which also says that we are alive."""
        router = self._gateway.router
        in_flight = {name: state.in_flight for name, state in router.workers.items() if state.in_flight}
        waiting = {model: len(queue) for model, queue in router.queues.items()}
        report = {
            "kind": "report",
            "open_requests": router.open_requests,
            "in_flight": in_flight,
            "waiting": waiting,
        }
        if self._tenants is not None:
            report["usage"] = self._tenants.report()
        self._tell(report)

    def _take_fact(self, record: dict[str, Any]) -> None:
        event = to_event(record)
        if isinstance(event, LoadSampled):
            own = self._marks.pop(event.worker_id, 0)
            event = LoadSampled(event.worker_id, event.incarnation, replace(event.sample, own_in_flight=own))
        self._gateway.handle(event)


def _finish(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
