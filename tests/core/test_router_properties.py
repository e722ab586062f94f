"""Under any order of events: load is conserved, trials come back, and whoever may serve can be asked."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from app.core.fleet.commands import Dispatch
from app.core.fleet.events import (
    AnswerBegan,
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
from app.core.fleet.reasons import Failure, MarkKind, Outcome
from app.core.overload.marks import TRIAL_LEASE_S
from app.core.routing.policies import POLICIES
from tests.core.script import Script, ordered, worker

NAMES = ("a", "b", "c")
STEPS = ["200", "400", "429", "500", "began", *Outcome, *Failure]


class Conservation(RuleBasedStateMachine):
    policy = "power_of_two"

    def __init__(self) -> None:
        super().__init__()
        self.script = Script(self.policy)
        self.open: dict[int, str] = {}
        self.samples = 0
        self.waited = 0
        self.incarnations = dict.fromkeys(NAMES, 0)

    @rule(name=st.sampled_from(NAMES), restart=st.booleans())
    def seen(self, name: str, restart: bool) -> None:
        self.incarnations[name] += restart
        self.script >> WorkerSeen(worker(name, "m", incarnation=str(self.incarnations[name])))

    @rule(name=st.sampled_from(NAMES), back=st.integers(0, 1))
    def gone(self, name: str, back: int) -> None:
        self.script >> WorkerGone(name, str(self.incarnations[name] - back))

    @rule(name=st.sampled_from(NAMES), healthy=st.booleans(), reachable=st.booleans())
    def health(self, name: str, healthy: bool, reachable: bool) -> None:
        self.script >> HealthReported(name, str(self.incarnations[name]), healthy, reachable)

    @rule(key=st.sampled_from([None, b"x", b"y"]))
    def arrive(self, key: bytes | None) -> None:
        verdict: Any = self.script.ask(key=key)
        if isinstance(verdict, Dispatch):
            self.open[verdict.token] = verdict.worker.id

    @precondition(lambda self: self.open)
    @rule(data=st.data(), step=st.sampled_from(STEPS))
    def go_on(self, data: st.DataObject, step: str) -> None:
        token = data.draw(st.sampled_from(sorted(self.open)))
        if step == "began":
            self.script >> AnswerBegan(token)
        elif step.isdigit():
            for command in self.script >> DispatchAccepted(token, int(step), 3.0):
                if isinstance(command, Dispatch):
                    assert command.worker.id != self.open[token], "never the same worker again"
                    self.open[token] = command.worker.id
        elif step in set(Outcome):
            self.script >> RequestFinished(token, Outcome(step))
            del self.open[token]
        else:
            verdict = self.script.fail(token, Failure(step))
            if isinstance(verdict, Dispatch):
                self.open[token] = verdict.worker.id
            else:
                del self.open[token]

    @rule(name=st.sampled_from(NAMES), waiting=st.sampled_from([0, 40, 100]), kv=st.sampled_from([None, 0.5, 0.99]))
    def sampled(self, name: str, waiting: int, kv: float | None) -> None:
        self.samples += 1
        sample = LoadSample(self.script.now, 1, waiting, 0, kv, self.samples)
        self.script >> LoadSampled(name, str(self.incarnations[name]), sample)

    @rule(name=st.sampled_from(NAMES), kind=st.sampled_from(list(MarkKind)), reporter=st.sampled_from(["x", "y"]))
    def told(self, name: str, kind: MarkKind, reporter: str) -> None:
        self.samples += 1
        until = self.script.now + 5
        self.script >> MarkTold(name, str(self.incarnations[name]), reporter, kind, self.samples, -1, until)

    @rule(name=st.sampled_from(NAMES), is_draining=st.booleans())
    def drained(self, name: str, is_draining: bool) -> None:
        self.script >> ordered(name, OrderKind.CORDON if is_draining else None)

    @rule(seconds=st.sampled_from([5, 40, 400]))
    def wait(self, seconds: int) -> None:
        self.script.now += seconds
        self.waited += seconds

    @invariant()
    def who_may_serve_can_be_asked(self) -> None:
        """I6, I12: only when all who could are overloaded, or an operator says so, is nobody eligible."""
        pool = self.script.router.pools.get("m")
        if pool is None:
            return
        eligible, now = set(pool.eligible), self.script.now
        assert not eligible & set(pool.trials)
        held = (*pool.eligible, *pool.trials, *pool.overloaded)
        assert not any(state.ordered(now) is OrderKind.CORDON for state in held)
        if not eligible:
            may_serve = [state for state in pool.members if state.ordered(now) is not OrderKind.CORDON]
            assert pool.shed == bool(pool.overloaded or pool.trials) == bool(may_serve)

    @invariant()
    def trials_come_back(self) -> None:
        """I7: at most one at a time, and none when nothing is open."""
        requests = self.script.router._open.values()
        trials = [request.state.worker.id for request in requests if request.is_trial]
        if not self.open:
            now = self.script.now
            assert all(state.sheet.has_token(now) for state in self.script.router.workers.values())
        within_a_lease = self.waited < TRIAL_LEASE_S
        assert len(trials) == len(set(trials)) or not within_a_lease, "one whose end nobody told is over by itself"

    @invariant()
    def load_is_conserved(self) -> None:
        counted = self.script.in_flight()
        assert all(load >= 0 for load in counted.values())
        # Requests of incarnations that are gone are open too, and counted on states that nobody sees any more.
        assert sum(counted.values()) <= len(self.open) == self.script.router.open_requests
        if not self.open:
            assert not any(counted.values())

    @invariant()
    def pools_hold_what_is_registered(self) -> None:
        pool = self.script.router.pools.get("m")
        members = [] if pool is None else [state.worker.id for state in pool.members]
        assert members == sorted(self.script.router.workers)


for _policy in POLICIES:
    _machine = type(f"Conservation_{_policy.name}", (Conservation,), {"policy": _policy.name})
    _case = _machine.TestCase
    _case.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
    globals()[f"Test_{_policy.name}"] = _case
del _case
