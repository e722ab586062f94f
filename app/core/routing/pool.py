"""What a policy is shown: the workers of one model, with their present load."""

from collections.abc import Callable

from app.core.fleet.engine import Engine
from app.core.fleet.load import LoadSample
from app.core.fleet.pin import Pin
from app.core.fleet.request import RequestFacts
from app.core.fleet.service import Service
from app.core.fleet.worker import Worker
from app.core.overload.health import Health, HealthThresholds, HealthTracker

SAMPLE_FRESH_S = 5.0
"""A sample older than this says nothing: its worker's load is unknown, and only our own dispatches count."""


class WorkerState:
    """All that one router knows of one incarnation of a worker.

    in_flight: reservations of this router: dispatched, not yet finished, failed or left by their clients.
    sample: the engine's last own word, None while there is none.
    is_draining: an operator wants it to finish what it has, and to get nothing new.
    """

    __slots__ = ("health", "in_flight", "is_draining", "sample", "worker")

    def __init__(self, worker: Worker, thresholds: HealthThresholds, *, is_draining: bool = False) -> None:
        self.worker = worker
        self.is_draining = is_draining
        self.health = HealthTracker(thresholds)
        self.in_flight = 0
        self.sample: LoadSample | None = None

    @property
    def is_eligible(self) -> bool:
        return self.health.state is Health.HEALTHY and not self.is_draining

    def load(self, now: float) -> int:
        """Requests on the worker, of everybody: the engine's sample plus what this router did since it was taken.

        Own dispatches are counted at once and own completions taken off, so that a burst between two samples spreads.
        Never less than our own: the engine may not have counted what is on its way. Without a fresh sample, our own.
        """
        sample = self.sample
        if sample is None or now - sample.taken_at > SAMPLE_FRESH_S:
            return self.in_flight
        return max(self.in_flight, sample.running + sample.waiting + self.in_flight - sample.own_in_flight)


ANY_ENGINE = Pin()


class Pool:
    """The workers of one model. Immutable: membership and eligibility changes make a new one.

    name: what a policy keeps its own state of a pool under: the model, for a lane with what sets it apart.
    members: all registered workers of the model, ordered by id.
    eligible: those that may take a request now. When none is healthy these are all that may be tried at all, and
    `panic` is True. Empty only when each drains or is outside of the pin: an operator's word holds in a panic too.
    """

    __slots__ = ("_lanes", "_pin", "_plain", "eligible", "members", "model", "name", "panic")

    def __init__(self, model: str, members: tuple[WorkerState, ...], pin: Pin = ANY_ENGINE, name: str = "") -> None:
        self.model = model
        self.name = name or model
        self.members = members
        self._pin = pin
        self._lanes: dict[Service, Pool | None] = {}
        self._plain: Pool | None = None
        willing = tuple(state for state in members if not state.is_draining and self.problem(state) is None)
        eligible = tuple(state for state in willing if state.is_eligible)
        self.panic = not eligible and bool(willing)
        self.eligible = eligible or willing

    def problem(self, state: WorkerState) -> str | None:
        """Why a member may not serve this model although it has it, or None."""
        return self._pin.problem(state.worker.engine) if self._pin is not ANY_ENGINE else None

    def takes(self, state: WorkerState) -> bool:
        """Whether a member may take a request now."""
        return (not state.is_draining if self.panic else state.is_eligible) and self.problem(state) is None

    def lane(self, facts: RequestFacts) -> "Pool | None":
        """The pool of those members that can serve this request; itself when all can, None when none can.

        Parameters that speculative decoding refuses lead to workers without it, as long as there are any: from the
        others the client gets the engine's own refusal.
        """
        service, lane = facts.service, self
        if service is not None:
            try:
                found = self._lanes[service]
            except KeyError:
                found = self._lanes[service] = self._part(service.path, lambda engine: engine.serves(service))
            if found is None:
                return None
            lane = found
        return lane._without_spec_decode() if facts.needs_logits else lane

    def _without_spec_decode(self) -> "Pool":
        if self._plain is None:
            plain = self._part("plain", lambda engine: engine.spec_decode is not True)
            self._plain = plain if plain is not None and plain.eligible and not plain.panic else self
        return self._plain

    def _part(self, what: str, fits: Callable[[Engine], bool]) -> "Pool | None":
        members = tuple(state for state in self.members if fits(state.worker.engine))
        if len(members) == len(self.members):
            return self
        return Pool(self.model, members, self._pin, f"{self.name} {what}") if members else None
