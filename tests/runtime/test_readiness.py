"""Ready from the first healthy worker until shutdown."""

from app.core.fleet.events import HealthReported, WorkerSeen
from app.runtime.readiness import Readiness
from tests.core.script import Script, worker


def test_once_ready_it_stays_ready_until_shutdown() -> None:
    script = Script()
    readiness = Readiness(script.router)
    assert readiness.problem() == "no worker is healthy yet"
    script >> WorkerSeen(worker("a", "m"))
    assert readiness.problem() == "no worker is healthy yet"
    script >> HealthReported("a", "1", healthy=True)
    assert readiness.problem() is None
    for _ in range(3):
        script >> HealthReported("a", "1", healthy=False)
    assert readiness.problem() is None
    readiness.is_shutting_down = True
    assert readiness.problem() == "shutting down"
