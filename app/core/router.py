"""Door 1: `Router.handle(event, now) -> commands`. Every replica has one; it is synchronous and awaits nothing.

A request's life here: RequestArrived -> Dispatch (load reserved under a token) -> DispatchAccepted (confirmed)
-> RequestFinished (released). DispatchFailed releases, then dispatches to the next worker of the ranking or refuses.

Invariants
    1. Each Dispatch reserves one unit of load on one worker, and exactly one later event releases it.
    2. An event about a token that is not open, or about an incarnation that is not the present one, changes nothing.
    3. A worker is tried at most once per request.
    4. Health evidence never touches load, and load never touches health.
"""

from collections.abc import Callable, Iterator, Mapping
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
    WorkerDraining,
    WorkerGone,
    WorkerSeen,
)
from app.core.fleet.pin import Pin
from app.core.fleet.reasons import ChoiceReason, Failure, RefusalReason
from app.core.fleet.request import RequestFacts
from app.core.fleet.rng import Rng
from app.core.fleet.worker import Worker
from app.core.overload.health import HealthThresholds
from app.core.routing.policy import Choice, Policy
from app.core.routing.pool import ANY_ENGINE, Pool, WorkerState

NOTHING: tuple[Command, ...] = ()

MAX_ATTEMPTS = 4
"""Workers tried per request at most: a pool that is gone must not cost one connect time-out per worker."""

REFUSAL_AFTER = {
    Failure.CONNECT: RefusalReason.UNREACHABLE,
    Failure.NO_ANSWER: RefusalReason.NO_ANSWER,
    Failure.TIMEOUT: RefusalReason.TIMEOUT,
}


class _Open:
    """An open request: where its load is reserved, and what is left of its ranking."""

    __slots__ = ("attempts", "facts", "ranking", "state")

    def __init__(self, facts: RequestFacts, ranking: Iterator[Choice], state: WorkerState) -> None:
        self.facts = facts
        self.ranking = ranking
        self.state = state
        self.attempts = 1


class Router:
    """Owns pools, health and in-flight load; decides with the given policy and chance.

    pins: model -> what may serve it.
    """

    def __init__(
        self,
        policy: Policy,
        rng: Rng,
        thresholds: HealthThresholds | None = None,
        pins: Mapping[str, Pin] | None = None,
    ) -> None:
        self.policy = policy
        self._rng = rng
        self._thresholds = thresholds or HealthThresholds()
        self._pins = pins or {}
        self._workers: dict[str, WorkerState] = {}
        self._draining: dict[str, None] = {}
        self._pools: dict[str, Pool] = {}
        self._open: dict[int, _Open] = {}
        self._next_token = 1
        self.was_healthy = False
        """Whether any pool has ever had a worker that takes requests."""
        self._now = float("-inf")
        self._handlers: dict[type, Callable[[Any], tuple[Command, ...]]] = {
            RequestArrived: self._request_arrived,
            DispatchAccepted: self._dispatch_accepted,
            DispatchFailed: self._dispatch_failed,
            RequestFinished: self._request_finished,
            WorkerSeen: self._worker_seen,
            WorkerGone: self._worker_gone,
            WorkerDraining: self._worker_draining,
            HealthReported: self._health_reported,
            LoadSampled: self._load_sampled,
        }

    def handle(self, event: Event, now: float) -> tuple[Command, ...]:
        """Take one event at `now` (monotonic seconds, never less than before) and return what to do about it.

        RequestArrived and DispatchFailed answer with a Dispatch or a Refuse, last in the tuple.
        """
        assert now >= self._now, "time ran backwards"
        self._now = now
        return self._handlers[type(event)](event)

    # What others may look at. Views are live: read them, never change them.

    @property
    def workers(self) -> dict[str, WorkerState]:
        return self._workers

    @property
    def pools(self) -> dict[str, Pool]:
        return self._pools

    @property
    def open_requests(self) -> int:
        return len(self._open)

    # Requests

    def _request_arrived(self, event: RequestArrived) -> tuple[Command, ...]:
        facts = event.facts
        pool = self._pools.get(facts.model)
        if pool is None:
            return (self._no_pool(facts),)
        lane = pool.lane(facts)
        if lane is None:
            return (_not_served(facts, pool),)
        if not lane.eligible:
            return (Refuse(RefusalReason.NO_WORKERS, "every worker of this model drains or is outside of its pin"),)
        ranking = self.policy.rank(facts, lane, self._rng, self._now)
        choice = next(ranking)
        token = self._next_token
        self._next_token = token + 1
        self._open[token] = _Open(facts, ranking, choice.worker)
        choice.worker.in_flight += 1
        reason = ChoiceReason.PANIC if lane.panic else choice.reason
        return (Dispatch(token, choice.worker.worker, self.policy.name, reason),)

    def _no_pool(self, facts: RequestFacts) -> Refuse:
        unknown = sum(1 for state in self._workers.values() if not state.worker.models)
        if not self._workers:
            return Refuse(RefusalReason.NO_WORKERS, "no worker is registered")
        if unknown:
            detail = f"{unknown} of {len(self._workers)} workers have not yet said which models they serve"
            return Refuse(RefusalReason.NO_WORKERS, detail)
        return Refuse(RefusalReason.MODEL_NOT_FOUND)

    def _dispatch_accepted(self, event: DispatchAccepted) -> tuple[Command, ...]:
        request = self._open.get(event.token)
        if request is not None:
            request.state.health.answered()
        return NOTHING

    def _dispatch_failed(self, event: DispatchFailed) -> tuple[Command, ...]:
        request = self._open.get(event.token)
        if request is None:
            return NOTHING
        failed = request.state
        failed.in_flight -= 1
        probe: tuple[Command, ...] = NOTHING
        if event.failure is Failure.CONNECT:
            if self._is_present(failed):
                if failed.health.connect_failed():
                    self._refresh_pools(failed.worker)
                probe = (Probe(failed.worker.id),)
            for choice in request.ranking:
                if request.attempts < MAX_ATTEMPTS and self._may_be_tried(choice.worker):
                    request.attempts += 1
                    request.state = choice.worker
                    choice.worker.in_flight += 1
                    return (
                        *probe,
                        Dispatch(event.token, choice.worker.worker, self.policy.name, ChoiceReason.FAILOVER),
                    )
        del self._open[event.token]
        return (*probe, Refuse(REFUSAL_AFTER[event.failure], f"{request.attempts} tried"))

    def _request_finished(self, event: RequestFinished) -> tuple[Command, ...]:
        request = self._open.pop(event.token, None)
        if request is not None:
            request.state.in_flight -= 1
        return NOTHING

    # Workers

    def _worker_seen(self, event: WorkerSeen) -> tuple[Command, ...]:
        worker = event.worker
        state = self._workers.get(worker.id)
        if state is None or state.worker.incarnation != worker.incarnation:
            before = state.worker.models if state is not None else {}
            is_draining = worker.id in self._draining
            self._workers[worker.id] = WorkerState(worker, self._thresholds, is_draining=is_draining)
            self._rebuild_pools([*before, *worker.models])
        else:
            before, engine = state.worker.models, state.worker.engine
            state.worker = worker
            if list(before) != list(worker.models) or engine != worker.engine:
                self._rebuild_pools([*before, *worker.models])
        return NOTHING

    def _worker_gone(self, event: WorkerGone) -> tuple[Command, ...]:
        state = self._workers.get(event.worker_id)
        if state is not None and state.worker.incarnation == event.incarnation:
            del self._workers[event.worker_id]
            self._draining.pop(event.worker_id, None)
            self._rebuild_pools(list(state.worker.models))
        return NOTHING

    def _worker_draining(self, event: WorkerDraining) -> tuple[Command, ...]:
        if event.is_draining:
            self._draining[event.worker_id] = None
        else:
            self._draining.pop(event.worker_id, None)
        state = self._workers.get(event.worker_id)
        if state is not None and state.is_draining != event.is_draining:
            state.is_draining = event.is_draining
            self._refresh_pools(state.worker)
        return NOTHING

    def _health_reported(self, event: HealthReported) -> tuple[Command, ...]:
        state = self._present(event.worker_id, event.incarnation)
        if state is not None:
            health = state.health
            changed = health.probe_succeeded() if event.healthy else health.probe_failed(reachable=event.reachable)
            if changed:
                self._refresh_pools(state.worker)
        return NOTHING

    def _load_sampled(self, event: LoadSampled) -> tuple[Command, ...]:
        state = self._present(event.worker_id, event.incarnation)
        if state is not None and (state.sample is None or event.sample.taken_at > state.sample.taken_at):
            state.sample = event.sample
        return NOTHING

    def _present(self, worker_id: str, incarnation: str) -> WorkerState | None:
        state = self._workers.get(worker_id)
        return state if state is not None and state.worker.incarnation == incarnation else None

    def _may_be_tried(self, state: WorkerState) -> bool:
        return self._is_present(state) and not state.is_draining

    def _is_present(self, state: WorkerState) -> bool:
        return self._workers.get(state.worker.id) is state

    def _rebuild_pools(self, models: list[str]) -> None:
        """Membership of these models changed."""
        for model in dict.fromkeys(models):
            members = tuple(
                self._workers[name] for name in sorted(self._workers) if model in self._workers[name].worker.models
            )
            if members:
                self._put(self._pool(model, members))
            else:
                self._pools.pop(model, None)

    def _refresh_pools(self, worker: Worker) -> None:
        """Eligibility of this worker changed; membership did not."""
        for model in worker.models:
            self._put(self._pool(model, self._pools[model].members))

    def _pool(self, model: str, members: tuple[WorkerState, ...]) -> Pool:
        return Pool(model, members, self._pins.get(model, ANY_ENGINE))

    def _put(self, pool: Pool) -> None:
        self._pools[pool.model] = pool
        self.was_healthy = self.was_healthy or (bool(pool.eligible) and not pool.panic)


def _not_served(facts: RequestFacts, pool: Pool) -> Refuse:
    """Every worker of the model says what it serves, and none serves this."""
    assert facts.service is not None
    paths = sorted({path for state in pool.members for path in state.worker.engine.paths})
    served = f"{facts.model!r} is served at {', '.join(paths)}"
    if facts.service.alternatives.isdisjoint(paths):
        return Refuse(RefusalReason.TASK_NOT_SERVED, f"{facts.service.task.value}; {served}")
    return Refuse(RefusalReason.PATH_NOT_SERVED, served)
