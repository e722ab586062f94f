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
    RequestArrived,
    RequestFinished,
    RequestLeft,
    TimePassed,
)
from app.core.fleet.pin import Pin
from app.core.fleet.reasons import ChoiceReason, Failure, RefusalReason
from app.core.fleet.request import RequestFacts
from app.core.fleet.rng import Rng
from app.core.overload.evidence import OF_FAILURE, OF_OUTCOME, Evidence, of_status
from app.core.overload.limit import NO_LIMIT
from app.core.overload.queue import Queue
from app.core.overload.retries import MAX_RETRIES, RetryBudget
from app.core.overload.settings import OverloadSettings
from app.core.overload.waiting_room import PAUSE_S, WaitingRoom
from app.core.routing import refusals
from app.core.routing.marking import NOTHING, Marking
from app.core.routing.policy import Choice, Policy
from app.core.routing.pool import Pool
from app.core.routing.pools import Pools
from app.core.routing.worker import WorkerState

MAX_ATTEMPTS = 1 + MAX_RETRIES
"""Workers tried per request at most: a pool that is gone must not cost one connect time-out per worker."""

SHED_TRIAL_S = 1.0
"""While all of a pool is overloaded, each of its workers is tried this often all the same."""

MOST_OVERLOADED = 0.5
"""Beyond this share of a pool a worker's "no more" is passed on: others would say the same, and it costs them to."""

FREES_NOTHING = frozenset({RequestArrived, RequestLeft, DispatchAccepted})
"""Events after which nobody who waits can be served who could not before."""

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
        self._limited: dict[str, None] = {}
        self._pools = Pools(
            self._settings, self._marking, pins or {}, on_gone=lambda worker: self._limited.pop(worker, None)
        )
        self._open: dict[int, _Open] = {}
        self._room = WaitingRoom(self._settings.queue)
        self._next_token = 1
        self._now = float("-inf")
        self._handlers: dict[type, Callable[[Any, float], tuple[Command, ...]]] = {
            RequestArrived: self._request_arrived,
            DispatchAccepted: self._dispatch_accepted,
            AnswerBegan: self._answer_began,
            DispatchFailed: self._dispatch_failed,
            RequestFinished: self._request_finished,
            RequestLeft: self._request_left,
            TimePassed: self._time_passed,
            **self._pools.handlers,
        }

    def handle(self, event: Event, now: float) -> tuple[Command, ...]:
        """Take one event at `now` (monotonic seconds, never less than before) and return what to do about it.

        RequestArrived and DispatchFailed answer with a Dispatch, an Enqueue or a Refuse, last in the tuple. What else
        is in it may be for requests that waited.
        """
        assert now >= self._now, "time ran backwards"
        self._now = now
        commands = self._handlers[type(event)](event, now)
        if self._room.queues and type(event) not in FREES_NOTHING:
            return (*self._serve_waiting(), *commands)
        return commands

    # What others may look at. Views are live: read them, never change them.

    @property
    def workers(self) -> dict[str, WorkerState]:
        return self._pools.workers

    @property
    def pools(self) -> dict[str, Pool]:
        return self._pools.pools

    def judge_due(self, now: float) -> None:
        """Have the pools be what they are at `now`, for who looks at them without asking for anything."""
        self._now = max(self._now, now)
        self._pools.judge_due(now)

    @property
    def was_healthy(self) -> bool:
        """Whether any pool has ever had a worker that takes requests."""
        return self._pools.was_healthy

    @property
    def open_requests(self) -> int:
        """Those that a worker has."""
        return len(self._open)

    @property
    def queues(self) -> Mapping[str, Queue]:
        """Model -> who waits for its workers; models for which nobody does are not in it."""
        return self._room.queues

    # Requests

    def _request_arrived(self, event: RequestArrived, now: float) -> tuple[Command, ...]:
        facts = event.facts
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
        pools = self._pools
        pool = pools.pool(facts.model, now)
        if pool is None:
            return refusals.no_pool(pools.workers.values(), was_served=pools.was_served(facts.model, now))
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

    def _dispatch_accepted(self, event: DispatchAccepted, now: float) -> tuple[Command, ...]:
        request = self._open.get(event.token)
        if request is None:
            return NOTHING
        status, after_s = event.status, event.retry_after_s
        if status < 400:
            state = request.state
            state.accrual.succeeded(now)
            if self._limited:
                state.limit.accepted(state.in_flight, now)
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

    def _answer_began(self, event: AnswerBegan, now: float) -> tuple[Command, ...]:
        request = self._open.get(event.token)
        if request is not None and request.is_trial:
            request.is_trial = False
            state = request.state
            state.hold(state.sheet.trial_passed(now))
            self._pools.judge_again(state, now)
        return NOTHING

    def _dispatch_failed(self, event: DispatchFailed, now: float) -> tuple[Command, ...]:
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
                and self._pools.takes(request.facts.model, choice.worker)
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

    def _request_finished(self, event: RequestFinished, now: float) -> tuple[Command, ...]:
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
            self._pools.judge_again(state, now)
        return commands if self._pools.is_present(state) else NOTHING

    # Requests that wait

    def _may_wait(self, facts: RequestFacts, refusal: Refuse) -> bool:
        """Only for a model that there is: names that clients make up must not have queues."""
        return self._room.takes(refusal) and (
            facts.model in self._pools.pools or self._pools.was_served(facts.model, self._now)
        )

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

    def _request_left(self, event: RequestLeft, now: float) -> tuple[Command, ...]:
        self._room.leave(event.token)
        return NOTHING

    def _time_passed(self, event: TimePassed, now: float) -> tuple[Command, ...]:
        return NOTHING
