"""Why nobody gets a request: what the router says when it finds no worker."""

from collections.abc import Collection

from app.core.fleet.commands import Refuse
from app.core.fleet.reasons import RefusalReason
from app.core.fleet.request import RequestFacts
from app.core.routing.pool import Pool
from app.core.routing.worker import WorkerState


def no_pool(workers: Collection[WorkerState], *, was_served: bool) -> Refuse:
    """No worker has the model. was_served: one had it not long ago, or the operator says that there is such a model."""
    if not workers:
        return Refuse(RefusalReason.NO_WORKERS, "no worker is registered")
    unknown = sum(1 for state in workers if not state.worker.models)
    if unknown:
        detail = f"{unknown} of {len(workers)} workers have not yet said which models they serve"
        return Refuse(RefusalReason.NO_WORKERS, detail)
    if was_served:
        return Refuse(RefusalReason.NO_WORKERS, "every worker of this model is gone")
    return Refuse(RefusalReason.MODEL_NOT_FOUND)


def nobody(lane: Pool, now: float) -> Refuse:
    """No worker of the lane may take anything now."""
    if lane.shed:
        ends = [state.sheet.until(now) for state in lane.overloaded]
        after_s = max(1.0, min(ends, default=now) - now)
        count = len(lane.overloaded) + len(lane.trials)
        return Refuse(RefusalReason.OVERLOADED, f"{count} of {len(lane.members)} workers", after_s)
    return Refuse(
        RefusalReason.NO_WORKERS,
        "every worker of this model is asleep, held back by an operator, or outside of its pin",
    )


def all_busy(lane: Pool) -> Refuse:
    """Each has as many requests as it may have."""
    detail = f"all of {len(lane.eligible)} workers have as many requests as they may have"
    return Refuse(RefusalReason.OVERLOADED, detail, 1.0)


def not_served(facts: RequestFacts, pool: Pool) -> Refuse:
    """Every worker of the model says what it serves, and none serves this."""
    assert facts.service is not None
    paths = sorted({path for state in pool.members for path in state.worker.engine.paths})
    served = f"{facts.model!r} is served at {', '.join(paths)}"
    if facts.service.alternatives.isdisjoint(paths):
        return Refuse(RefusalReason.TASK_NOT_SERVED, f"{facts.service.task.value}; {served}")
    return Refuse(RefusalReason.PATH_NOT_SERVED, served)
