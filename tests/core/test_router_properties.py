"""Conservation under any order of events: load is never negative, never lost, and zero when nothing is open."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from app.core.fleet.commands import Dispatch
from app.core.fleet.events import DispatchAccepted, HealthReported, WorkerGone, WorkerSeen
from app.core.fleet.reasons import Failure, Outcome
from app.core.routing.policies import POLICIES
from tests.core.script import Script, worker

NAMES = ("a", "b", "c")


class Conservation(RuleBasedStateMachine):
    policy = "power_of_two"

    def __init__(self) -> None:
        super().__init__()
        self.script = Script(self.policy)
        self.open: dict[int, str] = {}
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
    @rule(data=st.data(), step=st.sampled_from(["accept", "finish", "connect", "no_answer"]))
    def go_on(self, data: st.DataObject, step: str) -> None:
        token = data.draw(st.sampled_from(sorted(self.open)))
        if step == "accept":
            self.script >> DispatchAccepted(token)
        elif step == "finish":
            self.script.finish(token, Outcome.SERVED)
            del self.open[token]
        else:
            verdict = self.script.fail(token, Failure(step))
            if isinstance(verdict, Dispatch):
                self.open[token] = verdict.worker.id
            else:
                del self.open[token]

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
