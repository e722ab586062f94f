"""What a policy is shown: the workers of one model, with their present load."""

from app.core.fleet.load import LoadSample
from app.core.fleet.worker import Worker
from app.core.overload.health import Health, HealthThresholds, HealthTracker

SAMPLE_FRESH_S = 5.0
"""A sample older than this says nothing: its worker's load is unknown, and only our own dispatches count."""


class WorkerState:
    """All that one router knows of one incarnation of a worker.

    in_flight: reservations of this router: dispatched, not yet finished, failed or left by their clients.
    sample: the engine's last own word, None while there is none.
    is_draining: an operator wants it to finish what it has, and to get nothing new.
    """

    __slots__ = ("health", "in_flight", "is_draining", "sample", "worker")

    def __init__(self, worker: Worker, thresholds: HealthThresholds, *, is_draining: bool = False) -> None:
        self.worker = worker
        self.is_draining = is_draining
        self.health = HealthTracker(thresholds)
        self.in_flight = 0
        self.sample: LoadSample | None = None

    @property
    def is_eligible(self) -> bool:
        return self.health.state is Health.HEALTHY and not self.is_draining

    def load(self, now: float) -> int:
        """Requests on the worker, of everybody: the engine's sample plus what this router did since it was taken.

        Own dispatches are counted at once and own completions taken off, so that a burst between two samples spreads.
        Never less than our own: the engine may not have counted what is on its way. Without a fresh sample, our own.
        """
        sample = self.sample
        if sample is None or now - sample.taken_at > SAMPLE_FRESH_S:
            return self.in_flight
        return max(self.in_flight, sample.running + sample.waiting + self.in_flight - sample.own_in_flight)


class Pool:
    """The workers of one model. Immutable: membership and eligibility changes make a new one.

    members: all registered workers of the model, ordered by id.
    eligible: those that may take a request now. When none is healthy these are all that do not drain, and `panic` is
    True. Empty only when all drain: an operator's word holds in a panic too.
    """

    __slots__ = ("eligible", "members", "model", "panic")

    def __init__(self, model: str, members: tuple[WorkerState, ...]) -> None:
        self.model = model
        self.members = members
        eligible = tuple(state for state in members if state.is_eligible)
        willing = tuple(state for state in members if not state.is_draining)
        self.panic = not eligible and bool(willing)
        self.eligible = eligible or willing

    def takes(self, state: WorkerState) -> bool:
        """Whether a member may take a request now."""
        return not state.is_draining if self.panic else state.is_eligible
