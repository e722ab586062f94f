"""Requests that nobody can take just now, as dialogues with the router."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from app.core.fleet.commands import Dismiss, Dispatch, Enqueue, Refuse
from app.core.fleet.events import (
    DispatchAccepted,
    DispatchFailed,
    HealthReported,
    RequestArrived,
    RequestFinished,
    RequestLeft,
    TimePassed,
    WorkerGone,
    WorkerSeen,
)
from app.core.fleet.order import OrderKind
from app.core.fleet.priority import Priority
from app.core.fleet.reasons import Failure, Outcome, RefusalReason
from app.core.fleet.request import RequestFacts
from app.core.overload.settings import OverloadSettings
from app.core.overload.waiting_room import QueueSettings
from app.core.routing.policies import POLICIES
from tests.core.script import Script, ordered, worker

PATIENT = OverloadSettings(queue=QueueSettings(timeout_s=30.0, max_requests=4, max_tokens=100))
BUSY = OverloadSettings(queue=PATIENT.queue, worker_requests=1)


def arrive(script: Script, **facts: Any) -> Any:
    return (script >> RequestArrived(RequestFacts("r", "m", "/v1/chat/completions", **facts)))[-1]


def tokens_of(commands: tuple[Any, ...]) -> list[int]:
    return [command.token for command in commands if isinstance(command, Dispatch)]


def dismissed(commands: tuple[Any, ...]) -> dict[int, RefusalReason]:
    return {command.token: command.refuse.reason for command in commands if isinstance(command, Dismiss)}


def test_a_busy_workers_next_request_waits_until_one_ends() -> None:
    script = Script(settings=BUSY)
    script.healthy("a", "b")
    one, other = script.dispatched(), script.dispatched()
    assert {one.worker.id, other.worker.id} == {"a", "b"}
    third, fourth = arrive(script), arrive(script)
    assert isinstance(third, Enqueue)
    assert isinstance(fourth, Enqueue)
    freed = script >> RequestFinished(other.token, Outcome.SERVED)
    assert tokens_of(freed) == [third.token]
    assert freed[0].worker.id == other.worker.id
    assert script.in_flight() == {"a": 1, "b": 1}
    assert tokens_of(script >> RequestFinished(one.token, Outcome.SERVED)) == [fourth.token]
    assert not script.router.queues


def test_nobody_overtakes_who_waits() -> None:
    script = Script(settings=BUSY)
    script.healthy("a")
    running = script.dispatched()
    first = arrive(script)
    script >> ordered("a")
    script >> RequestFinished(running.token, Outcome.SERVED)
    second = arrive(script)
    assert isinstance(second, Enqueue)
    assert tokens_of(script >> ordered("a", None)) == [first.token]


@pytest.mark.parametrize("model", ["m", "other"])
def test_during_a_rollout_requests_wait_for_the_next_worker(model: str) -> None:
    script = Script(settings=PATIENT)
    script.healthy("a")
    script.healthy("z", model="another")
    script >> WorkerGone("a", "1")
    verdict = (script >> RequestArrived(RequestFacts("r", model, "/")))[-1]
    if model == "other":
        assert verdict == Refuse(RefusalReason.MODEL_NOT_FOUND), "a name that somebody made up"
        return
    assert isinstance(verdict, Enqueue)
    script >> WorkerSeen(worker("b", "m"))
    assert tokens_of(script.said) == [verdict.token]


def test_a_model_whose_last_worker_went_long_ago_is_none() -> None:
    script = Script(settings=PATIENT)
    script.healthy("z", model="another")
    script.healthy("a")
    script >> WorkerGone("a", "1")
    script.now += 599
    assert isinstance(script.ask(), Enqueue)
    script.now += 2
    script >> TimePassed()
    assert script.ask() == Refuse(RefusalReason.MODEL_NOT_FOUND)


def test_who_waited_too_long_is_told_why() -> None:
    script = Script(settings=PATIENT)
    script.healthy("a")
    script >> WorkerGone("a", "1")
    long, short = arrive(script), arrive(script, patience_s=2.0)
    assert dismissed(script >> TimePassed()) == {}
    assert dismissed(script >> TimePassed()) == {short.token: RefusalReason.QUEUE_EXPIRED}
    script.now += 30
    (told,) = script >> TimePassed()
    assert isinstance(told, Dismiss)
    assert told.token == long.token
    assert told.refuse.detail.startswith("waited 3")
    assert "no worker is registered" in told.refuse.detail


def test_who_stands_behind_one_whose_time_is_over_is_served() -> None:
    script = Script(settings=BUSY)
    script.healthy("a")
    running = script.dispatched()
    first = arrive(script, patience_s=2.0)
    second = arrive(script)
    freed = script >> RequestFinished(running.token, Outcome.SERVED)
    assert dismissed(freed) == {first.token: RefusalReason.QUEUE_EXPIRED}
    assert tokens_of(freed) == [second.token]


def test_impatience_before_it_began_is_refused() -> None:
    script = Script(settings=PATIENT)
    script.healthy("a")
    script >> WorkerGone("a", "1")
    verdict = arrive(script, patience_s=0.0)
    assert isinstance(verdict, Refuse)
    assert verdict.reason is RefusalReason.QUEUE_EXPIRED


def test_a_client_that_leaves_waits_no_more() -> None:
    script = Script(settings=BUSY)
    script.healthy("a")
    running, waits = script.dispatched(), arrive(script)
    assert script >> RequestLeft(waits.token) == ()
    assert script >> RequestFinished(running.token, Outcome.SERVED) == ()
    assert script >> RequestLeft(waits.token) == ()


def test_a_full_queue_refuses_or_makes_room() -> None:
    script = Script(settings=BUSY)
    script.healthy("a")
    script.dispatched()
    mine = [arrive(script, tenant="a") for _ in range(4)]
    assert arrive(script, tenant="a").reason is RefusalReason.QUEUE_FULL
    assert arrive(script, tenant="b", priority=Priority.LOW).reason is RefusalReason.QUEUE_FULL
    other = arrive(script, tenant="b")
    assert isinstance(other, Enqueue)
    assert dismissed(script.said) == {mine[3].token: RefusalReason.QUEUE_FULL}
    urgent = arrive(script, tenant="a", priority=Priority.CRITICAL)
    assert isinstance(urgent, Enqueue)
    assert dismissed(script.said) == {mine[2].token: RefusalReason.QUEUE_FULL}


def test_tokens_are_bounded_too_and_one_request_alone_may_be_of_any_size() -> None:
    script = Script(settings=BUSY)
    script.healthy("a")
    script.dispatched()
    assert isinstance(arrive(script, tokens=1000), Enqueue)
    assert arrive(script, tokens=1).reason is RefusalReason.QUEUE_FULL


def test_workers_that_cannot_be_reached_are_tried_again_after_a_pause() -> None:
    script = Script(settings=PATIENT)
    script.healthy("a")
    sent = script.dispatched()
    verdict = script.fail(sent.token, Failure.CONNECT)
    assert isinstance(verdict, Enqueue)
    assert verdict.token == sent.token
    assert script.router.handle(TimePassed(), script.now + 0.3) == ()
    assert tokens_of(script.router.handle(TimePassed(), script.now + 0.6)) == [sent.token]


def test_what_may_have_run_never_waits() -> None:
    script = Script(settings=PATIENT)
    script.healthy("a")
    assert script.fail(script.dispatched().token, Failure.NO_ANSWER).reason is RefusalReason.NO_ANSWER


def test_while_all_shed_those_who_wait_are_the_trials() -> None:
    script = Script(settings=PATIENT)
    script.healthy("a")
    token = script.dispatched().token
    script >> DispatchAccepted(token, 429, 20.0)
    script >> RequestFinished(token, Outcome.SERVED)
    trial = script.dispatched()  # one each second
    waits = script.router.handle(RequestArrived(RequestFacts("r", "m", "/")), script.now)[-1]
    assert isinstance(waits, Enqueue)
    script.router.handle(DispatchAccepted(trial.token, 200), script.now)
    script.router.handle(RequestFinished(trial.token, Outcome.SERVED), script.now)
    assert tokens_of(script >> TimePassed()) == [waits.token]


class Waits(RuleBasedStateMachine):
    """Nobody waits for what is free; everybody is dispatched, dismissed or left; bounds hold."""

    policy = "power_of_two"

    def __init__(self) -> None:
        super().__init__()
        self.script = Script(self.policy, settings=OverloadSettings(queue=PATIENT.queue, worker_requests=2))
        self.was_answered = False
        self.running: set[int] = set()
        self.waiting: set[int] = set()
        self.script.healthy("a")

    def take(self, commands: tuple[Any, ...]) -> None:
        for command in commands:
            if isinstance(command, Dispatch):
                assert command.token not in self.running
                self.waiting.discard(command.token)
                self.running.add(command.token)
            elif isinstance(command, Dismiss):
                self.waiting.remove(command.token)
            elif isinstance(command, Enqueue):
                self.waiting.add(command.token)

    @rule(
        tenant=st.sampled_from("ab"),
        priority=st.sampled_from(list(Priority)),
        tokens=st.integers(1, 60),
        patience_s=st.sampled_from([None, 1.0, 10.0]),
    )
    def arrives(self, **facts: Any) -> None:
        self.take(self.script >> RequestArrived(RequestFacts("r", "m", "/", **facts)))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), outcome=st.sampled_from(list(Outcome)))
    def finishes(self, data: st.DataObject, outcome: Outcome) -> None:
        token = data.draw(st.sampled_from(sorted(self.running)))
        self.running.remove(token)
        self.take(self.script >> RequestFinished(token, outcome))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), status=st.sampled_from([200, 429, 500]))
    def is_answered(self, data: st.DataObject, status: int) -> None:
        token = data.draw(st.sampled_from(sorted(self.running)))
        self.was_answered = True
        commands = self.script >> DispatchAccepted(token, status, 2.0)
        assert not commands or not isinstance(commands[-1], Dispatch) or commands[-1].token == token

    @precondition(lambda self: self.running)
    @rule(data=st.data(), failure=st.sampled_from(list(Failure)))
    def fails(self, data: st.DataObject, failure: Failure) -> None:
        token = data.draw(st.sampled_from(sorted(self.running)))
        self.running.remove(token)
        self.take(self.script >> DispatchFailed(token, failure))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leaves(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(sorted(self.waiting)))
        self.waiting.remove(token)
        self.take(self.script >> RequestLeft(token))

    @rule(name=st.sampled_from("ab"), goes=st.booleans())
    def comes_or_goes(self, name: str, goes: bool) -> None:
        self.take(self.script >> (WorkerGone(name, "1") if goes else WorkerSeen(worker(name, "m"))))

    @rule(name=st.sampled_from("ab"), healthy=st.booleans())
    def health(self, name: str, healthy: bool) -> None:
        self.take(self.script >> HealthReported(name, "1", healthy))

    @rule(name=st.sampled_from("ab"), is_draining=st.booleans())
    def drains(self, name: str, is_draining: bool) -> None:
        self.take(self.script >> ordered(name, OrderKind.CORDON if is_draining else None))

    @rule(seconds=st.sampled_from([0.2, 1.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        self.script.now += seconds
        self.take(self.script >> TimePassed())

    @invariant()
    def who_waits_is_known(self) -> None:
        queues = self.script.router.queues
        assert sum(map(len, queues.values())) == len(self.waiting)
        assert self.script.router.open_requests == len(self.running)
        for queue in queues.values():
            assert 0 < len(queue) <= 4
            assert queue.tokens <= 100 or len(queue) == 1

    @invariant()
    def nobody_waits_for_what_is_free(self) -> None:
        """Looking again at the same moment finds nothing, but after an answer, whose worker's mark ends another's."""
        commands = self.script.router.handle(TimePassed(), self.script.now)
        assert not tokens_of(commands) or self.was_answered
        self.take(commands)
        self.was_answered = False

    def teardown(self) -> None:
        """In the end nobody is left waiting."""
        self.script.now += 1000
        self.take(self.script >> TimePassed())
        assert not self.waiting


for _policy in POLICIES:
    _machine = type(f"Waits_{_policy.name}", (Waits,), {"policy": _policy.name})
    _case = _machine.TestCase
    _case.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
    globals()[f"Test_{_policy.name}"] = _case
del _case
