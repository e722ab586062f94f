"""The router as a dialogue."""

import pytest

from app.core.fleet.commands import Dispatch, Probe, Refuse
from app.core.fleet.events import (
    DispatchAccepted,
    HealthReported,
    LoadSampled,
    MarkTold,
    RequestFinished,
    WorkerGone,
    WorkerSeen,
)
from app.core.fleet.load import LoadSample
from app.core.fleet.order import OrderKind
from app.core.fleet.reasons import ChoiceReason, Failure, MarkKind, Outcome, RefusalReason
from app.core.overload.marks import State
from app.core.router import MAX_ATTEMPTS
from app.core.routing.policies import POLICIES
from tests.core.script import Script, ordered, worker


def test_a_request_reserves_at_once_and_releases_once() -> None:
    script = Script()
    script.healthy("a")
    dispatch = script.dispatched()
    assert dispatch.worker.id == "a"
    assert script.in_flight() == {"a": 1}
    script >> DispatchAccepted(dispatch.token)
    assert script.in_flight() == {"a": 1}
    script.finish(dispatch.token)
    script.finish(dispatch.token)
    assert script.in_flight() == {"a": 0}
    assert script.router.open_requests == 0


@pytest.mark.parametrize("failure", [Failure.NO_ANSWER, Failure.TIMEOUT])
def test_what_may_have_run_is_not_sent_again(failure: Failure) -> None:
    script = Script()
    script.healthy("a", "b")
    dispatch = script.dispatched()
    verdict = script.fail(dispatch.token, failure)
    assert isinstance(verdict, Refuse)
    assert verdict.reason.value in ("worker_no_answer", "request_timeout")
    assert script.in_flight() == {"a": 0, "b": 0}


def test_a_connect_failure_moves_on_to_each_other_worker_once() -> None:
    script = Script()
    script.healthy("a", "b", "c")
    dispatch = script.dispatched()
    tried = [dispatch.worker.id]
    verdict = script.fail(dispatch.token)
    while isinstance(verdict, Dispatch):
        assert verdict.token == dispatch.token
        assert verdict.reason is ChoiceReason.FAILOVER
        tried.append(verdict.worker.id)
        assert sum(script.in_flight().values()) == 1
        verdict = script.fail(verdict.token)
    assert sorted(tried) == ["a", "b", "c"]
    assert verdict == Refuse(RefusalReason.UNREACHABLE, "3 tried")
    assert script.in_flight() == {"a": 0, "b": 0, "c": 0}


def test_attempts_are_bounded_in_a_large_pool() -> None:
    script = Script()
    script.healthy(*(f"w{number:02}" for number in range(20)))
    verdict = script.ask()
    tried = 0
    while isinstance(verdict, Dispatch):
        tried += 1
        verdict = script.fail(verdict.token)
    assert tried == MAX_ATTEMPTS


def test_a_connect_failure_asks_for_a_probe_and_two_pieces_of_evidence_exclude() -> None:
    script = Script()
    script.healthy("a", "b")
    first = script.dispatched()
    script.fail(first.token)
    assert Probe(first.worker.id) in script.said
    script >> HealthReported(first.worker.id, "1", healthy=False, reachable=False)
    assert script.dispatched().worker.id != first.worker.id
    later = [script.dispatched() for _ in range(6)]
    assert [(each.worker.id, each.reason.value) for each in later].count((first.worker.id, "trial")) == 1


def test_unknown_models_and_missing_workers_are_told_apart() -> None:
    script = Script()
    assert script.ask() == Refuse(RefusalReason.NO_WORKERS, "no worker is registered")
    script.healthy("a", model="m")
    assert script.ask("other") == Refuse(RefusalReason.MODEL_NOT_FOUND)
    script >> WorkerSeen(worker("b"))
    verdict = script.ask("other")
    assert isinstance(verdict, Refuse)
    assert verdict.reason is RefusalReason.NO_WORKERS


def test_no_healthy_worker_is_panic_not_refusal() -> None:
    script = Script()
    script.healthy("a", "b")
    for name in ("a", "b"):
        for _ in range(3):
            script >> HealthReported(name, "1", healthy=False)
    assert script.dispatched().reason is ChoiceReason.PANIC


def test_one_healthy_worker_ends_the_panic() -> None:
    script = Script()
    script >> WorkerSeen(worker("a", "m"))
    script >> WorkerSeen(worker("b", "m"))
    assert script.dispatched().reason is ChoiceReason.PANIC
    script >> HealthReported("b", "1", healthy=True)
    assert {script.dispatched().worker.id for _ in range(4)} == {"b"}


def test_facts_about_another_incarnation_change_nothing() -> None:
    script = Script()
    script.healthy("a")
    script >> WorkerGone("a", "0")
    assert script.dispatched().worker.id == "a"
    script >> LoadSampled("a", "0", LoadSample(script.now, 50, 0, 0))
    assert script.load("a") == 1
    for _ in range(5):
        script >> HealthReported("a", "0", healthy=False)
    assert script.dispatched().reason is not ChoiceReason.PANIC


def test_a_new_incarnation_starts_unknown_and_old_requests_do_not_count_against_it() -> None:
    script = Script()
    script.healthy("a")
    old = script.dispatched()
    script >> WorkerSeen(worker("a", "m", incarnation="2"))
    assert script.in_flight() == {"a": 0}
    assert script.dispatched().reason is ChoiceReason.PANIC
    script.finish(old.token)
    assert script.in_flight() == {"a": 1}


def test_a_worker_that_left_during_failover_is_not_tried() -> None:
    script = Script()
    script.healthy("a", "b")
    dispatch = script.dispatched()
    other = "b" if dispatch.worker.id == "a" else "a"
    script >> WorkerGone(other, "1")
    assert isinstance(script.fail(dispatch.token), Refuse)


def test_a_model_that_a_worker_stops_serving_goes() -> None:
    script = Script()
    script.healthy("a")
    script >> WorkerSeen(worker("a", "n"))
    assert script.ask("m") == Refuse(RefusalReason.MODEL_NOT_FOUND)
    assert script.dispatched("n").worker.id == "a"
    assert sorted(script.router.pools) == ["n"]


def test_a_draining_worker_finishes_and_gets_nothing_new() -> None:
    script = Script()
    script.healthy("a", "b")
    running = script.dispatched()
    script >> ordered(running.worker.id)
    other = "b" if running.worker.id == "a" else "a"
    assert {script.dispatched().worker.id for _ in range(6)} == {other}
    script.finish(running.token)
    script >> WorkerSeen(worker(running.worker.id, "m", incarnation="2"))
    script >> HealthReported(running.worker.id, "2", healthy=True)
    assert {script.dispatched().worker.id for _ in range(6)} == {other}, "a restart does not end it"
    script >> ordered(running.worker.id, None)
    assert {script.dispatched().worker.id for _ in range(6)} == {"a", "b"}


def sampled(script: Script, name: str, seq: int, *, stalled_s: float = 0.0, is_asleep: bool = False) -> None:
    sample = LoadSample(script.now + 1.0, 1, 0, 0, None, seq, stalled_s, is_asleep)
    script >> LoadSampled(name, "1", sample)


def test_a_wedged_worker_gets_nothing_until_it_makes_a_step() -> None:
    script = Script()
    script.healthy("a", "b")
    sampled(script, "a", 1, stalled_s=59.0)
    assert {script.dispatched().worker.id for _ in range(4)} == {"a", "b"}
    sampled(script, "a", 2, stalled_s=60.0)
    assert {script.dispatched().worker.id for _ in range(3)} == {"b"}
    sampled(script, "a", 3, stalled_s=66.0)
    assert {script.dispatched().worker.id for _ in range(4)} == {"b"}
    sampled(script, "a", 4)
    assert script.router.pools["m"].eligible[0].worker.id == "a"
    assert script.router.workers["a"].ramp_until > script.now, "slow start"


def test_a_wedged_worker_of_which_nothing_is_heard_any_more_is_unknown() -> None:
    script = Script()
    script.healthy("a", "b")
    sampled(script, "a", 1, stalled_s=60.0)
    script.now += 6.0
    assert "a" in {script.dispatched().worker.id for _ in range(30)}


def test_a_worker_that_sleeps_gets_nothing_even_when_it_is_alone() -> None:
    script = Script()
    script.healthy("a")
    sampled(script, "a", 1, is_asleep=True)
    assert script.ask() == Refuse(
        RefusalReason.NO_WORKERS,
        "every worker of this model is asleep, held back by an operator, or outside of its pin",
    )
    sampled(script, "a", 2)
    assert script.dispatched().worker.id == "a"


def test_a_full_worker_is_not_marked_and_gets_no_more_until_one_ends() -> None:
    """It refuses, without a time, while it works on others of ours."""
    script = Script("least_load")
    script.healthy("a")
    mine = [script.dispatched() for _ in range(11)]
    for each in mine[:10]:
        script >> DispatchAccepted(each.token, 200)
    assert script >> DispatchAccepted(mine[10].token, 503, None, True) == (), "there is nobody else to ask"
    script.finish(mine[10].token)
    assert script.router.workers["a"].sheet.state(script.now) is not State.MARKED
    refused = script.ask()
    assert (refused.reason, refused.retry_after_s) == (RefusalReason.OVERLOADED, 1.0)
    for each in mine[:2]:
        script.finish(each.token)
    assert isinstance(script.ask(), Dispatch)
    assert isinstance(script.ask(), Refuse), "nine tenths of what it had when it refused"


@pytest.mark.parametrize(
    ("others", "status", "retry_after_s", "engines_own", "comes_of_it"),
    [
        (10, 429, None, False, "limit"),
        (10, 503, None, True, "limit"),
        (10, 429, 5.0, False, "mark"),
        (1, 429, None, False, "mark"),
        (0, 503, None, True, "mark"),
        (10, 503, None, False, ""),
    ],
)
def test_what_comes_of_a_refusal(
    others: int, status: int, retry_after_s: float | None, engines_own: bool, comes_of_it: str
) -> None:
    """A time is a worker's word; without others of ours there it has no other reason; a proxy's 503 is one failure."""
    script = Script()
    script.healthy("a")
    for _ in range(others):
        script >> DispatchAccepted(script.dispatched().token, 200)
    script >> DispatchAccepted(script.dispatched().token, status, retry_after_s, engines_own)
    found = script.router.workers["a"]
    assert (found.sheet.state(script.now) is State.MARKED) is (comes_of_it == "mark")
    assert (found.limit.most <= others) is (comes_of_it == "limit")


def test_a_restarted_worker_has_no_limit() -> None:
    script = Script()
    script.healthy("a")
    tokens = [script.dispatched().token for _ in range(6)]
    script >> DispatchAccepted(tokens[5], 429)
    assert script.router.workers["a"].limit.most < 6
    script >> WorkerSeen(worker("a", "m", incarnation="2"))
    script >> HealthReported("a", "2", healthy=True)
    assert all(isinstance(script.ask(), Dispatch) for _ in range(20))


def test_an_order_ends_by_itself() -> None:
    script = Script()
    script.healthy("a", "b")
    script >> ordered("a", OrderKind.CORDON, until=script.now + 10.5)
    assert {script.dispatched().worker.id for _ in range(8)} == {"b"}
    assert [script.dispatched().worker.id for _ in range(6)].count("a") >= 2
    assert script.router.workers["a"].ordered(script.now) is None


def test_who_is_forced_in_takes_requests_whatever_is_held_against_it() -> None:
    script = Script()
    script.healthy("a", "b")
    for name in ("a", "b"):
        token = next(verdict.token for verdict in iter(script.dispatched, None) if verdict.worker.id == name)
        script >> DispatchAccepted(token, 429, 20.0)
    assert isinstance(script.ask(), Refuse | Dispatch)
    script >> ordered("a", OrderKind.FORCE_IN)
    assert {script.dispatched().worker.id for _ in range(6)} == {"a"}
    script >> ordered("a", None)
    pool = script.router.pools["m"]
    assert not pool.eligible
    assert pool.shed


@pytest.mark.parametrize("policy", [policy.name for policy in POLICIES])
def test_draining_holds_in_a_panic_and_when_it_is_everybody(policy: str) -> None:
    script = Script(policy)
    script.healthy("a", "b")
    script >> ordered("a")
    for _ in range(3):
        script >> HealthReported("b", "1", healthy=False)
    assert {script.dispatched(key=b"%d" % number).worker.id for number in range(20)} == {"b"}
    script >> ordered("b")
    assert script.ask() == Refuse(
        RefusalReason.NO_WORKERS,
        "every worker of this model is asleep, held back by an operator, or outside of its pin",
    )


def test_finishing_a_request_that_is_not_open_is_nothing() -> None:
    script = Script()
    assert script >> RequestFinished(99, Outcome.SERVED) == ()


def test_time_must_not_run_backwards() -> None:
    script = Script()
    script.healthy("a")
    with pytest.raises(AssertionError, match="backwards"):
        script.router.handle(RequestFinished(1, Outcome.SERVED), 0.5)


@pytest.mark.parametrize("policy", [policy.name for policy in POLICIES])
@pytest.mark.parametrize("end", [Failure.CONNECT, Failure.TIMEOUT, 429, 500])
def test_a_trial_of_the_only_worker_that_fails_is_refused(policy: str, end: Failure | int) -> None:
    """There is nobody to go on to, and no policy is asked to rank nobody."""
    script = Script(policy)
    script.healthy("a")
    first = script.dispatched()
    script >> DispatchAccepted(first.token, 429, 1.0)
    script >> RequestFinished(first.token, Outcome.SERVED)
    script.now += 2
    tried = script.dispatched()
    assert tried.reason is ChoiceReason.TRIAL
    if isinstance(end, Failure):
        assert isinstance(script.fail(tried.token, end), Refuse)
    else:
        assert not any(isinstance(command, Dispatch) for command in script >> DispatchAccepted(tried.token, end, 1.0))
        script >> RequestFinished(tried.token, Outcome.SERVED)
    assert script.in_flight() == {"a": 0}
    assert script.router.workers["a"].sheet.has_token(script.now)


def test_a_suspected_worker_that_serves_in_a_panic_is_failed_over_to() -> None:
    script = Script()
    script.healthy("a", "b", "c")
    for name, reporter in (("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")):
        script >> MarkTold(name, "1", reporter, MarkKind.FAILING, 1, -1, script.now + 100)
    assert [state.worker.id for state in script.router.pools["m"].eligible] == ["a", "c"], "a was suspected first"
    (of_c,) = [dispatch for dispatch in (script.dispatched(), script.dispatched()) if dispatch.worker.id == "c"]
    verdict = script.fail(of_c.token)
    assert isinstance(verdict, Dispatch)
    assert (verdict.worker.id, verdict.reason) == ("a", ChoiceReason.FAILOVER)
