"""A dialogue with the router: events in, expected commands out, on a clock that the test turns."""

import random
from typing import Any

from app.core.fleet.commands import Command, Dispatch, Probe, Refuse
from app.core.fleet.events import (
    DispatchAccepted,
    DispatchFailed,
    Event,
    HealthReported,
    LoadSampled,
    RequestArrived,
    RequestFinished,
    WorkerGone,
    WorkerOrdered,
    WorkerSeen,
)
from app.core.fleet.load import LoadSample
from app.core.fleet.order import Order, OrderKind
from app.core.fleet.reasons import Failure, Outcome
from app.core.fleet.request import RequestFacts
from app.core.fleet.worker import Worker
from app.core.overload.settings import OverloadSettings
from app.core.router import Router
from app.core.routing.policies import make_policy


def worker(name: str, *models: str, incarnation: str = "1") -> Worker:
    return Worker(name, f"http://{name}", incarnation, {model: b'{"id":"%s"}' % model.encode() for model in models})


def ordered(worker_id: str, kind: OrderKind | None = OrderKind.DRAIN, until: float = float("inf")) -> WorkerOrdered:
    """An operator wants this; None: nothing any more."""
    return WorkerOrdered(worker_id, Order(kind, "a reason", "ops", until) if kind is not None else None)


class Script:
    """`script >> event` turns the clock by a second and hands the event over; what came of it is in `said`."""

    def __init__(self, policy: str = "round_robin", *, seed: int = 0, settings: OverloadSettings | None = None) -> None:
        self.router = Router(make_policy(policy), random.Random(seed), settings)
        self.now = 0.0
        self.said: tuple[Command, ...] = ()

    def __rshift__(self, event: Event) -> tuple[Command, ...]:
        self.now += 1.0
        self.said = self.router.handle(event, self.now)
        return self.said

    def healthy(self, *names: str, model: str = "m") -> None:
        """Register workers of one model and have their first probe succeed."""
        for name in names:
            self >> WorkerSeen(worker(name, model))
            self >> HealthReported(name, "1", healthy=True)

    def ask(self, model: str = "m", key: bytes | None = None) -> Any:
        """The verdict on a new request."""
        return (self >> RequestArrived(RequestFacts("r", model, "/v1/chat/completions", key)))[-1]

    def dispatched(self, model: str = "m", key: bytes | None = None) -> Dispatch:
        verdict = self.ask(model, key)
        assert isinstance(verdict, Dispatch), verdict
        return verdict

    def fail(self, token: int, failure: Failure = Failure.CONNECT) -> Any:
        return (self >> DispatchFailed(token, failure))[-1]

    def finish(self, token: int, outcome: Outcome = Outcome.SERVED) -> None:
        assert self >> RequestFinished(token, outcome) == ()

    def sample(self, name: str, running: int, waiting: int = 0, *, own: int = 0, age: float = 0.0) -> None:
        self >> LoadSampled(name, "1", LoadSample(self.now + 1.0 - age, running, waiting, own))

    def load(self, name: str) -> int:
        return self.router.workers[name].load(self.now)

    def in_flight(self) -> dict[str, int]:
        return {name: state.in_flight for name, state in self.router.workers.items()}


__all__ = ["DispatchAccepted", "Probe", "Refuse", "Script", "WorkerGone", "ordered", "worker"]
