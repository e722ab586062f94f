"""What one router knows of a worker, as the events from which another one knows the same."""

from app.core.fleet.events import HealthReported, LoadSampled, WorkerOrdered, WorkerSeen
from app.core.overload.health import Health, HealthThresholds
from app.core.routing.worker import WorkerState

Fact = WorkerSeen | WorkerOrdered | HealthReported | LoadSampled


def facts_of(state: WorkerState, thresholds: HealthThresholds) -> list[Fact]:
    """All but marks, which their makers tell, and requests. thresholds: by which the other router counts probes."""
    worker, health = state.worker, state.health
    facts: list[Fact] = [WorkerSeen(worker)]
    if state.order is not None:
        facts.append(WorkerOrdered(worker.id, state.order))
    if health.was_healthy:
        facts.append(HealthReported(worker.id, worker.incarnation, healthy=True))
    if health.state is Health.UNHEALTHY:
        failed = HealthReported(worker.id, worker.incarnation, healthy=False, reachable=health.can_connect)
        facts += [failed] * thresholds.failures
    if state.sample is not None:
        # Its number too: evidence that comes before the next sample is newer than this one.
        facts.append(LoadSampled(worker.id, worker.incarnation, state.sample))
    return facts
