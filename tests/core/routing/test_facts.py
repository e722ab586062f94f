"""A router that is told what another knows judges the workers as that one does."""

import random

from hypothesis import given
from hypothesis import strategies as st

from app.core.fleet.events import HealthReported, LoadSampled, WorkerSeen
from app.core.fleet.load import LoadSample
from app.core.overload.health import HealthThresholds
from app.core.router import Router
from app.core.routing.facts import facts_of
from app.core.routing.policies import make_policy
from tests.core.script import Script, ordered, worker

NAMES = ("a", "b", "c")
HAPPENS = st.tuples(st.sampled_from(NAMES), st.sampled_from(["healthy", "sick", "gone", "drains", "sampled"]))


@given(st.lists(HAPPENS, max_size=30))
def test_the_same_facts_make_the_same_pool(events: list[tuple[str, str]]) -> None:
    script = Script()
    for name in NAMES:
        script >> WorkerSeen(worker(name, "m"))
    for number, (name, what) in enumerate(events, 1):
        if what == "drains":
            script >> ordered(name)
        elif what == "sampled":
            script >> LoadSampled(name, "1", LoadSample(script.now, 2, number % 90, 0, None, number))
        else:
            script >> HealthReported(name, "1", healthy=what == "healthy", reachable=what != "gone")
    other = Router(make_policy("round_robin"), random.Random(0))
    for state in script.router.workers.values():
        for fact in facts_of(state, HealthThresholds()):
            other.handle(fact, script.now)
    for state in script.router.workers.values():
        told, health = other.workers[state.worker.id], state.health
        assert (told.health.state, told.health.was_healthy, told.health.can_connect) == (
            health.state,
            health.was_healthy,
            health.can_connect,
        )
        assert (told.order, told.sample) == (state.order, state.sample)
