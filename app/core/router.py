"""Door 1: `Router.handle(event, now) -> commands`. Every replica has one; it is synchronous and awaits nothing.

A request's life here: RequestArrived -> Dispatch (load reserved under a token) -> DispatchAccepted (confirmed)
-> RequestFinished (released). DispatchFailed releases, then dispatches to the next worker of the ranking or refuses;
so does a DispatchAccepted whose answer says that the worker takes no more, but that such an answer may also stand.
Where requests may wait, an Enqueue comes in place of a refusal, and the Dispatch with what makes room for it.

Invariants
    1. Each Dispatch reserves one unit of load on one worker, and exactly one later event releases it.
    2. An event about a token that is not open, or about an incarnation that is not the present one, changes nothing.
    3. A worker is tried at most once per request, and all that is tried again is paid for by one budget.
    4. Health evidence never touches load, and load never touches health.
    5. A trial's token comes back on every way that a request can end.
    6. Nobody waits for what is free, and everybody who waits is dispatched, dismissed or left in the end.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from app.core.fleet.commands import Command, Dismiss, Dispatch, Enqueue, Refuse
from app.core.fleet.events import (
    AnswerBegan,
    DispatchAccepted,
    DispatchFailed,
    Event,
    HealthReported,
    LoadSampled,
    MarkTold,
    RequestArrived,
    RequestFinished,
    RequestLeft,
    TimePassed,
    WorkerGone,
    WorkerOrdered,
    WorkerSeen,
)
from app.core.fleet.order import Order
from app.core.fleet.pin import Pin
from app.core.fleet.reasons import ChoiceReason, Failure, RefusalReason
from app.core.fleet.request import RequestFacts
from app.core.fleet.rng import Rng
from app.core.overload.evidence import OF_FAILURE, OF_OUTCOME, Evidence, of_status
from app.core.overload.health import Health
from app.core.overload.limit import NO_LIMIT
from app.core.overload.marks import FOR_EVER, Mark
from app.core.overload.queue import Queue
from app.core.overload.retries import MAX_RETRIES, RetryBudget
from app.core.overload.settings import OverloadSettings
from app.core.overload.waiting_room import PAUSE_S, WaitingRoom
from app.core.routing import refusals
from app.core.routing.marking import NOTHING, Marking
from app.core.routing.policy import Choice, Policy
from app.core.routing.pool import ANY_ENGINE, Pool
from app.core.routing.worker import WorkerState

MAX_ATTEMPTS = 1 + MAX_RETRIES
"""Workers tried per request at most: a pool that is gone must not cost one connect time-out per worker."""

SHED_TRIAL_S = 1.0
"""While all of a pool is overloaded, each of its workers is tried this often all the same."""

MOST_OVERLOADED = 0.5
"""Beyond this share of a pool a worker's "no more" is passed on: others would say the same, and it costs them to."""

FREES_NOTHING = frozenset({RequestArrived, RequestLeft, DispatchAccepted})
"""Events after which nobody who waits can be served who could not before."""

KNOWN_S = 600.0
"""For how long a model whose last worker went is one that there is: a rollout may take its time."""

KNOWN_MOST = 1000

REFUSAL_AFTER = {
    Failure.CONNECT: RefusalReason.UNREACHABLE,
    Failure.NO_ANSWER: RefusalReason.NO_ANSWER,
    Failure.TIMEOUT: RefusalReason.TIMEOUT,
}


class _Open:
    """A request that a worker has: where its load is reserved, what is left of its ranking, if it is a trial there.

    since: when it arrived here.
    """

    __slots__ = ("attempts", "facts", "is_trial", "lane", "ranking", "since", "state")

    def __init__(
        self,
        facts: RequestFacts,
        since: float,
        lane: Pool,
        ranking: Iterator[Choice],
        state: WorkerState,
        *,
        is_trial: bool,
    ) -> None:
        self.facts = facts
        self.since = since
        self.lane = lane
        self.ranking = ranking
        self.state = state
        self.is_trial = is_trial
        self.attempts = 1


class Router:
    """Owns pools, health and in-flight load; decides with the given policy and chance.

    pins: model -> what may serve it.
    """

    def __init__(
        self,
        policy: Policy,
        rng: Rng,
        settings: OverloadSettings | None = None,
        pins: Mapping[str, Pin] | None = None,
    ) -> None:
        self.policy = policy
        self._rng = rng
        self._settings = settings or OverloadSettings()
        self._marking = Marking(rng)
        self._budget = RetryBudget()
        self._pins = pins or {}
        self._workers: dict[str, WorkerState] = {}
        self._orders: dict[str, Order] = {}
        self._pools: dict[str, Pool] = {}
        self._absent: dict[str, float] = {}
        self._limited: dict[str, None] = {}
        self._open: dict[int, _Open] = {}
        self._room = WaitingRoom(self._settings.queue)
        self._next_token = 1
        self.was_healthy = False
        """Whether any pool has ever had a worker that takes requests."""
        self._now = float("-inf")
        self._handlers: dict[type, Callable[[Any], tuple[Command, ...]]] = {
            RequestArrived: self._request_arrived,
            DispatchAccepted: self._dispatch_accepted,
            AnswerBegan: self._answer_began,
            DispatchFailed: self._dispatch_failed,
            RequestFinished: self._request_finished,
            RequestLeft: self._request_left,
            TimePassed: self._time_passed,
            WorkerSeen: self._worker_seen,
            WorkerGone: self._worker_gone,
            WorkerOrdered: self._worker_ordered,
            HealthReported: self._health_reported,
            LoadSampled: self._load_sampled,
            MarkTold: self._mark_told,
        }

    def handle(self, event: Event, now: float) -> tuple[Command, ...]:
        """Take one event at `now` (monotonic seconds, never less than before) and return what to do about it.

        RequestArrived and DispatchFailed answer with a Dispatch, an Enqueue or a Refuse, last in the tuple. What else
        is in it may be for requests that waited.
        """
        assert now >= self._now, "time ran backwards"
        self._now = now
        commands = self._handlers[type(event)](event)
        if self._room.queues and type(event) not in FREES_NOTHING:
            return (*self._serve_waiting(), *commands)
        return commands

    # What others may look at. Views are live: read them, never change them.

    @property
    def workers(self) -> dict[str, WorkerState]:
        return self._workers

    @property
    def pools(self) -> dict[str, Pool]:
        return self._pools

    def judge_due(self, now: float) -> None:
        """Have the pools be what they are at `now`, for who looks at them without asking for anything."""
        self._now = max(self._now, now)
        for pool in [pool for pool in self._pools.values() if now >= pool.changes_at]:
            self._put(self._pool(pool.model, pool.members))

    @property
    def open_requests(self) -> int:
        """Those that a worker has."""
        return len(self._open)

    @property
    def queues(self) -> Mapping[str, Queue]:
        """Model -> who waits for its workers; models for which nobody does are not in it."""
        return self._room.queues

    # Requests

    def _request_arrived(self, event: RequestArrived) -> tuple[Command, ...]:
        facts, now = event.facts, self._now
        token = self._next_token
        self._next_token = token + 1
        if facts.model in self._room.queues:
            return self._enqueue(token, facts, now)  # nobody overtakes who waits
        verdict = self._place(token, facts, now)
        if isinstance(verdict, Refuse) and self._may_wait(facts, verdict):
            return self._enqueue(token, facts, now)
        return (verdict,)

    def _place(self, token: int, facts: RequestFacts, since: float) -> Dispatch | Refuse:
        """A worker for a request that arrived at `since`, whose load is reserved under `token`."""
        now = self._now
        pool = self._pools.get(facts.model)
        if pool is None:
            return refusals.no_pool(self._workers.values(), was_served=self._was_served(facts.model))
        if now >= pool.changes_at:
            pool = self._pool(pool.model, pool.members)
            self._put(pool)
        lane = pool.lane(facts)
        if lane is None:
            return refusals.not_served(facts, pool)
        tried = self._on_trial(lane) if lane.trials or lane.shed else None
        if tried is None and not lane.eligible:
            return refusals.nobody(lane, now)
        # A policy ranks somebody: where only a trial may be made, nobody follows it.
        ranking = self.policy.rank(facts, lane, self._rng, now) if lane.eligible else iter(())
        if self._settings.worker_requests or self._limited:
            ranking = self._with_room(ranking)
        if tried is not None:
            tried.hold(tried.sheet.trial_began(now))
            choice = Choice(tried, ChoiceReason.TRIAL)
        else:
            first = next(ranking, None)
            if first is None:
                return refusals.all_busy(lane)
            choice = self._eased(first, ranking) if lane.ramps and first.worker.ramp_until > now else first
        self._budget.deposit()
        self._open[token] = _Open(facts, since, lane, ranking, choice.worker, is_trial=tried is not None)
        choice.worker.in_flight += 1
        reason = ChoiceReason.PANIC if lane.panic and tried is None else choice.reason
        return Dispatch(token, choice.worker.worker, self.policy.name, reason)

    def _with_room(self, ranking: Iterator[Choice]) -> Iterator[Choice]:
        return (choice for choice in ranking if self._has_room(choice.worker))

    def _has_room(self, state: WorkerState) -> bool:
        """By what the operator allows, and by what the worker itself refused."""
        most = self._settings.worker_requests
        return state.in_flight < state.limit.most and (not most or state.load(self._now) < most)

    def _on_trial(self, lane: Pool) -> WorkerState | None:
        """Who is to be tried with this request: a worker whose mark is over, and while all shed each now and then."""
        now = self._now
        for state in lane.trials:
            if state.sheet.has_token(now):
                return state
        if lane.shed:
            for state in lane.overloaded:
                if state.sheet.has_token(now) and now >= state.tried_at + SHED_TRIAL_S:
                    state.tried_at = now
                    return state
        return None

    def _eased(self, choice: Choice, ranking: Iterator[Choice]) -> Choice:
        """Slow start: the choice, or with the share that it does not get yet, the next that is not in slow start."""
        if self._rng.random() < choice.worker.sheet.weight(self._now):
            return choice
        return next((other for other in ranking if other.worker.ramp_until <= self._now), choice)

    def _dispatch_accepted(self, event: DispatchAccepted) -> tuple[Command, ...]:
        request = self._open.get(event.token)
        if request is None:
            return NOTHING
        status, after_s = event.status, event.retry_after_s
        if status < 400:
            state = request.state
            state.accrual.succeeded(self._now)
            if self._limited:
                state.limit.accepted(state.in_flight, self._now)
                if state.limit.most == NO_LIMIT:
                    self._limited.pop(state.worker.id, None)
            return NOTHING
        evidence = of_status(status, names_a_time=after_s is not None, is_engines_own=event.is_engines_own)
        if evidence is Evidence.OVERLOAD and after_s is None and self._is_full(request):
            told = NOTHING
        else:
            told = self._learn(request, evidence, after_s)
        if evidence is Evidence.OVERLOAD and not request.facts.is_sent_once:
            lane = request.lane
            if len(lane.overloaded) + 1 <= MOST_OVERLOADED * len(lane.members):
                again = self._again(event.token, request, ChoiceReason.RETRY)
                if again is not None:
                    return (*told, again)
        return told

    def _is_full(self, request: _Open) -> bool:
        """Whether a refusal only says that the worker has as many of our requests as it takes."""
        state = request.state
        if request.is_trial or not state.limit.refused(state.in_flight - 1, self._now):
            return False
        self._limited[state.worker.id] = None
        return True

    def _answer_began(self, event: AnswerBegan) -> tuple[Command, ...]:
        request = self._open.get(event.token)
        if request is not None and request.is_trial:
            request.is_trial = False
            state = request.state
            state.hold(state.sheet.trial_passed(self._now))
            self._judge_again(state)
        return NOTHING

    def _dispatch_failed(self, event: DispatchFailed) -> tuple[Command, ...]:
        request = self._open.get(event.token)
        if request is None:
            return NOTHING
        told = self._learn(request, OF_FAILURE[event.failure])
        if event.failure is Failure.CONNECT:
            again = self._again(event.token, request, ChoiceReason.FAILOVER)
            if again is not None:
                return (*told, again)
        del self._open[event.token]
        request.state.in_flight -= 1
        refused = Refuse(REFUSAL_AFTER[event.failure], f"{request.attempts} tried")
        if self._may_wait(request.facts, refused):
            return (*told, *self._enqueue(event.token, request.facts, request.since, PAUSE_S))
        return (*told, refused)

    def _again(self, token: int, request: _Open, reason: ChoiceReason) -> Dispatch | None:
        """To the next of the ranking, if there is one and the budget allows it."""
        if request.attempts >= MAX_ATTEMPTS:
            return None
        failed = request.state
        following = next(
            (
                choice.worker
                for choice in request.ranking
                if choice.worker is not failed
                and self._takes(request.facts.model, choice.worker)
                and self._has_room(choice.worker)
            ),
            None,
        )
        if following is None or not self._budget.withdraw(self._now):
            return None
        failed.in_flight -= 1
        following.in_flight += 1
        request.attempts += 1
        request.state = following
        return Dispatch(token, following.worker, self.policy.name, reason)

    def _request_finished(self, event: RequestFinished) -> tuple[Command, ...]:
        request = self._open.pop(event.token, None)
        if request is None:
            return NOTHING
        request.state.in_flight -= 1
        evidence = OF_OUTCOME[event.outcome]
        if request.is_trial or evidence is not Evidence.NEUTRAL:
            return self._learn(request, evidence)
        return NOTHING

    def _learn(self, request: _Open, evidence: Evidence, retry_after_s: float | None = None) -> tuple[Command, ...]:
        """What came of a dispatch says this of its worker. Ends its trial, if it was one."""
        state, now = request.state, self._now
        before = state.sheet
        if request.is_trial:
            request.is_trial = False
            state.hold(state.sheet.trial_returned())
            commands = self._marking.failed_trial(state, evidence, now, retry_after_s)
        else:
            commands = self._marking.take(state, evidence, now, retry_after_s)
        if state.sheet is not before:
            self._judge_again(state)
        return commands if self._is_present(state) else NOTHING

    # Requests that wait

    def _may_wait(self, facts: RequestFacts, refusal: Refuse) -> bool:
        """Only for a model that there is: names that clients make up must not have queues."""
        return self._room.takes(refusal) and (facts.model in self._pools or self._was_served(facts.model))

    def _enqueue(self, token: int, facts: RequestFacts, since: float, pause_s: float = 0.0) -> tuple[Command, ...]:
        """Have it wait. It may be its turn at once, and others may have to make room."""
        own: Command = Enqueue(token)
        others: list[Command] = []
        for command in (*self._room.enter(token, facts, since, self._now, pause_s), *self._serve_waiting()):
            if command.token != token:
                others.append(command)
            else:
                own = command.refuse if isinstance(command, Dismiss) else command
        return (*others, own)

    def _serve_waiting(self) -> Iterator[Dispatch | Dismiss]:
        return self._room.serve(self._now, self._place)

    def _request_left(self, event: RequestLeft) -> tuple[Command, ...]:
        self._room.leave(event.token)
        return NOTHING

    def _time_passed(self, event: TimePassed) -> tuple[Command, ...]:
        return NOTHING

    # Workers

    def _worker_seen(self, event: WorkerSeen) -> tuple[Command, ...]:
        worker = event.worker
        state = self._workers.get(worker.id)
        if state is None or state.worker.incarnation != worker.incarnation:
            before = state.worker.models if state is not None else {}
            self._workers[worker.id] = WorkerState(worker, self._settings, self._orders.get(worker.id))
            self._rebuild_pools([*before, *worker.models], is_loss=True)
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
            self._limited.pop(event.worker_id, None)
            self._orders.pop(event.worker_id, None)
            self._rebuild_pools(list(state.worker.models), is_loss=True)
        return NOTHING

    def _worker_ordered(self, event: WorkerOrdered) -> tuple[Command, ...]:
        if event.order is not None:
            self._orders[event.worker_id] = event.order
        else:
            self._orders.pop(event.worker_id, None)
        state = self._workers.get(event.worker_id)
        if state is not None and state.order != event.order:
            state.order = event.order
            self._judge_again(state)
        return NOTHING

    def _health_reported(self, event: HealthReported) -> tuple[Command, ...]:
        state = self._present(event.worker_id, event.incarnation)
        if state is None:
            return NOTHING
        if not event.healthy:
            told = self._marking.probe_failed(state, self._now, reachable=event.reachable)
            if state.health.probe_failed(reachable=event.reachable) or told:
                if state.health.state is Health.UNHEALTHY:
                    state.unwell_at = min(self._now, state.unwell_at)
                self._judge_again(state)
            return told
        state.accrual.probe_succeeded()
        if state.health.probe_succeeded():
            # New, or back from where it was not well: either way its caches are cold and it is not known how it does.
            state.unwell_at = FOR_EVER
            state.hold(state.sheet.started(self._now))
            self._judge_again(state)
        return NOTHING

    def _load_sampled(self, event: LoadSampled) -> tuple[Command, ...]:
        state = self._present(event.worker_id, event.incarnation)
        if state is None or (state.sample is not None and event.sample.taken_at <= state.sample.taken_at):
            return NOTHING
        now, sheet, was_latched = self._now, state.sheet, state.latch.holds(self._now)
        was, was_stuck, was_asleep = sheet.state(now), state.is_stuck(now), state.is_asleep(now)
        state.sample = event.sample
        is_stuck, is_asleep = state.is_stuck(now), state.is_asleep(now)
        if (was_stuck and not is_stuck) or (was_asleep and not is_asleep):
            state.hold(sheet.started(now))
            sheet = state.sheet
        is_healthy = state.latch.sample(event.sample) and state.health.state is Health.HEALTHY and not is_stuck
        state.hold(sheet.observed(event.sample.seq, now, is_healthy=is_healthy))
        is_changed = (is_stuck, is_asleep) != (was_stuck, was_asleep)
        if is_changed or state.sheet.state(now) is not was or state.latch.holds(now) is not was_latched:
            self._judge_again(state)
        return NOTHING

    def _mark_told(self, event: MarkTold) -> tuple[Command, ...]:
        state = self._present(event.worker_id, event.incarnation)
        if state is not None:
            after_seq = event.after_seq if event.after_seq >= 0 else state.sheet.seq
            mark = Mark(event.reporter, event.kind, event.number, after_seq, event.until)
            sheet = state.sheet.told(mark, self._now)
            if sheet is not state.sheet:
                state.hold(sheet)
                self._judge_again(state)
        return NOTHING

    def _present(self, worker_id: str, incarnation: str) -> WorkerState | None:
        state = self._workers.get(worker_id)
        return state if state is not None and state.worker.incarnation == incarnation else None

    def _takes(self, model: str, state: WorkerState) -> bool:
        """Whether a worker of an older ranking may still be asked: as its pool stands by now."""
        return self._is_present(state) and model in state.worker.models and self._pools[model].takes(state)

    def _is_present(self, state: WorkerState) -> bool:
        return self._workers.get(state.worker.id) is state

    def _rebuild_pools(self, models: list[str], *, is_loss: bool = False) -> None:
        """Membership of these models changed. is_loss: for a worker that went, not one that serves other models now."""
        for model in dict.fromkeys(models):
            members = tuple(
                self._workers[name] for name in sorted(self._workers) if model in self._workers[name].worker.models
            )
            if members:
                self._put(self._pool(model, members))
                self._absent.pop(model, None)
            elif self._pools.pop(model, None) is not None and is_loss:
                self._absent[model] = self._now
                if len(self._absent) > KNOWN_MOST:
                    del self._absent[next(iter(self._absent))]

    def _was_served(self, model: str) -> bool:
        """Whether there is such a model, although no worker has it just now."""
        return model in self._pins or self._now - self._absent.get(model, float("-inf")) <= KNOWN_S

    def _judge_again(self, state: WorkerState) -> None:
        """What counts of this worker changed; membership did not."""
        if self._is_present(state):
            for model in state.worker.models:
                self._put(self._pool(model, self._pools[model].members))

    def _pool(self, model: str, members: tuple[WorkerState, ...]) -> Pool:
        return Pool(model, members, self._now, self._pins.get(model, ANY_ENGINE))

    def _put(self, pool: Pool) -> None:
        self._pools[pool.model] = pool
        self.was_healthy = self.was_healthy or (bool(pool.eligible) and not pool.panic)
