"""What a policy is shown: the workers of one model, with their present load."""

from collections.abc import Callable
from statistics import median_low

from app.core.fleet.engine import Engine
from app.core.fleet.load import SAMPLE_FRESH_S
from app.core.fleet.pin import Pin
from app.core.fleet.request import RequestFacts
from app.core.fleet.service import Service
from app.core.overload.eligibility import judge
from app.core.routing.worker import WorkerState

ANY_ENGINE = Pin()

MOST_RAMPING = 0.5
"""Slow start needs others to start slowly beside: when more than these are in it, nobody is."""


class Pool:
    """The workers of one model as they stood at `now`. Immutable: who learns more, or when time changes it, makes anew.

    name: what a policy keeps its own state of a pool under: the model, for a lane with what sets it apart.
    members: all registered workers of the model, ordered by id.
    eligible: those that may take any request. Empty when each is held back by an operator or outside of the pin, or
    when all are overloaded. trials: those that may take one, to show that they can. overloaded: those that said so.
    panic: some of the eligible would not be if there were others enough. shed: nobody is eligible, for overload alone.
    ramps: whether eligible workers in slow start are to be spared.
    changes_at: until when this holds if nothing happens, monotonic seconds.
    """

    __slots__ = (
        "_lanes",
        "_now",
        "_pin",
        "_plain",
        "_takers",
        "changes_at",
        "eligible",
        "members",
        "model",
        "name",
        "overloaded",
        "panic",
        "ramps",
        "shed",
        "trials",
    )

    def __init__(
        self, model: str, members: tuple[WorkerState, ...], now: float, pin: Pin = ANY_ENGINE, name: str = ""
    ) -> None:
        self.model = model
        self.name = name or model
        self.members = members
        self._now = now
        self._pin = pin
        self._lanes: dict[Service, Pool | None] = {}
        self._plain: Pool | None = None
        standing = judge(
            [state.member(now, fits=self.problem(state) is None) for state in members],
            now,
        )
        self.eligible = tuple(members[place] for place in standing.eligible)
        self.trials = tuple(members[place] for place in standing.trials)
        self.overloaded = tuple(members[place] for place in standing.overloaded)
        self.panic = standing.panic
        self.shed = standing.shed
        self._takers = frozenset(state.worker.id for state in self.eligible)
        ramping = sum(state.ramp_until > now for state in self.eligible)
        self.ramps = 0 < ramping <= MOST_RAMPING * len(self.eligible)
        self.changes_at = standing.changes_at
        self._assume_loads()

    def problem(self, state: WorkerState) -> str | None:
        """Why a member may not serve this model although it has it, or None."""
        return self._pin.problem(state.worker.engine) if self._pin is not ANY_ENGINE else None

    def takes(self, state: WorkerState) -> bool:
        """Whether a member may take any request now."""
        return state.worker.id in self._takers

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
        return Pool(self.model, members, self._now, self._pin, f"{self.name} {what}") if members else None

    def _assume_loads(self) -> None:
        """Of those whose load is not known: the median of what the others have beside our own requests."""
        now = self._now
        known = [state for state in self.eligible if state.is_known(now)]
        if known:
            freshest_end = min(state.sample.taken_at for state in known if state.sample) + SAMPLE_FRESH_S
            self.changes_at = min(self.changes_at, freshest_end)
        if len(known) == len(self.eligible):
            return
        usual = median_low([max(0, state.load(now) - state.in_flight) for state in known]) if known else 0
        for state in self.eligible:
            if not state.is_known(now):
                state.assumed_load = usual
