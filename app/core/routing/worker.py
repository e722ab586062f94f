"""A worker as one router knows it."""

from app.core.fleet.load import SAMPLE_FRESH_S, LoadSample
from app.core.fleet.worker import Worker
from app.core.overload.accrual import Accrual
from app.core.overload.eligibility import Member
from app.core.overload.health import HealthTracker
from app.core.overload.latch import OverloadLatch
from app.core.overload.marks import FOR_EVER, NEVER, RAMP_S, MarkSheet
from app.core.overload.settings import OverloadSettings


class WorkerState:
    """All that one router knows of one incarnation of a worker.

    in_flight: reservations of this router: dispatched, not yet finished, failed or left by their clients.
    sample: the engine's last own word, None while there is none. assumed_load: of others, while that is not known.
    is_draining: an operator wants it to finish what it has, and to get nothing new.
    sheet: what is held against it. ramp_until: end of its slow start. tried_at: when it was last tried although it said
    that it is overloaded. unwell_at: since when it is unhealthy, FOR_EVER while it is not.
    """

    __slots__ = (
        "accrual",
        "assumed_load",
        "health",
        "in_flight",
        "is_draining",
        "latch",
        "ramp_until",
        "sample",
        "sheet",
        "tried_at",
        "unwell_at",
        "worker",
    )

    def __init__(self, worker: Worker, settings: OverloadSettings, *, is_draining: bool = False) -> None:
        self.worker = worker
        self.is_draining = is_draining
        self.health = HealthTracker(settings.health)
        self.accrual = Accrual()
        self.latch = OverloadLatch(settings.latch)
        self.sheet = MarkSheet()
        self.ramp_until = NEVER
        self.tried_at = NEVER
        self.unwell_at = FOR_EVER
        self.in_flight = 0
        self.assumed_load = 0
        self.sample: LoadSample | None = None

    def hold(self, sheet: MarkSheet) -> None:
        """Replace what is held against it."""
        self.sheet = sheet
        self.ramp_until = sheet.ramp_from + RAMP_S

    def load(self, now: float) -> int:
        """Requests on the worker, of everybody: the engine's sample plus what this router did since it was taken.

        Own dispatches are counted at once and own completions taken off, so that a burst between two samples spreads.
        Never less than our own: the engine may not have counted what is on its way. Without a fresh sample it is not
        known: our own on top of what is usual in the pool, since who says nothing is not idle.
        """
        sample = self.sample
        if sample is None or now - sample.taken_at > SAMPLE_FRESH_S:
            return self.in_flight + self.assumed_load
        return max(self.in_flight, sample.running + sample.waiting + self.in_flight - sample.own_in_flight)

    def is_known(self, now: float) -> bool:
        """Whether its load is."""
        return self.sample is not None and now - self.sample.taken_at <= SAMPLE_FRESH_S

    def member(self, now: float, *, is_willing: bool) -> Member:
        """What counts of it when the workers of a pool are judged."""
        health = self.health
        return Member(
            is_willing,
            health.state,
            health.was_healthy,
            health.can_connect,
            self.sheet,
            self.latch.holds(now),
            self.latch.frees_at(now),
            self.unwell_at,
        )
