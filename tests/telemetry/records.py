"""Records of requests, and workers, for the tests of this folder."""

from typing import Any

from app.core.fleet.commands import Dispatch
from app.core.fleet.load import LoadSample
from app.core.fleet.reasons import ChoiceReason, Outcome
from app.core.fleet.record import RequestRecord
from app.core.fleet.worker import Worker
from app.core.overload.health import HealthThresholds
from app.core.overload.settings import OverloadSettings
from app.core.routing.worker import WorkerState


def dispatch(worker: str = "gpu-1:8000", reason: ChoiceReason = ChoiceReason.LOWER_LOAD) -> Dispatch:
    return Dispatch(1, Worker(worker, f"http://{worker}", "i1"), "power_of_two", reason)


def record(**changes: Any) -> RequestRecord:
    made = RequestRecord("req-1", "POST", "/v1/chat/completions", started_at=10.0, model="llama", status=200)
    made.outcome, made.dispatch, made.duration_s, made.bytes_in, made.bytes_out = (
        Outcome.SERVED,
        dispatch(),
        1.5,
        100,
        2000,
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def worker_state(
    name: str, *, healthy: bool | None, in_flight: int = 0, sample: LoadSample | None = None
) -> tuple[str, WorkerState]:
    state = WorkerState(
        Worker(name, f"http://{name}", "i1"), OverloadSettings(HealthThresholds(failures=1, successes=1))
    )
    if healthy is True:
        state.health.probe_succeeded()
    elif healthy is False:
        state.health.probe_failed(reachable=True)
    state.in_flight = in_flight
    state.sample = sample
    return name, state
