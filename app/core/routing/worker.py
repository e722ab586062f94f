"""A worker as one router knows it."""

from app.core.fleet.load import SAMPLE_FRESH_S, LoadSample
from app.core.fleet.order import Order, OrderKind
from app.core.fleet.worker import Worker
from app.core.overload.accrual import Accrual
from app.core.overload.eligibility import Member
from app.core.overload.health import HealthTracker
from app.core.overload.latch import OverloadLatch
from app.core.overload.limit import Limit
from app.core.overload.marks import FOR_EVER, NEVER, RAMP_S, MarkSheet
from app.core.overload.settings import OverloadSettings


class WorkerState:
    """All that one router knows of one incarnation of a worker.

    in_flight: reservations of this router: dispatched, not yet finished, failed or left by their clients.
    limit: requests of this router that it takes at a time, as far as its refusals told.
    sample: the engine's last own word, None while there is none. assumed_load: of others, while that is not known.
    order: what an operator wants of it, which may be over.
    sheet: what is held against it. ramp_until: end of its slow start. tried_at: when it was last tried although it said
    that it is overloaded. unwell_at: since when it is unhealthy, FOR_EVER while it is not. stall_s: without a step,
    after which it counts as wedged.
    """

    __slots__ = (
        "accrual",
        "assumed_load",
        "health",
        "in_flight",
        "latch",
        "limit",
        "order",
        "ramp_until",
        "sample",
        "sheet",
        "stall_s",
        "tried_at",
        "unwell_at",
        "worker",
    )

    def __init__(self, worker: Worker, settings: OverloadSettings, order: Order | None = None) -> None:
        self.worker = worker
        self.order = order
        self.health = HealthTracker(settings.health)
        self.accrual = Accrual()
        self.latch = OverloadLatch(settings.latch)
        self.limit = Limit()
        self.sheet = MarkSheet()
        self.ramp_until = NEVER
        self.tried_at = NEVER
        self.unwell_at = FOR_EVER
        self.in_flight = 0
        self.assumed_load = 0
        self.sample: LoadSample | None = None
        self.stall_s = settings.stall_s or FOR_EVER

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

    def is_stuck(self, now: float) -> bool:
        """It has work, and makes no step."""
        return self.sample is not None and self.sample.stalled_s >= self.stall_s and self.is_known(now)

    def is_asleep(self, now: float) -> bool:
        return self.sample is not None and self.sample.is_asleep and self.is_known(now)

    def ordered(self, now: float) -> OrderKind | None:
        """What an operator wants of it now."""
        order = self.order
        return order.kind if order is not None and order.until > now else None

    def member(self, now: float, *, fits: bool) -> Member:
        """What counts of it when the workers of a pool are judged. fits: it is what the pool's pin asks for."""
        health, ordered = self.health, self.ordered(now)
        is_forced = ordered is OrderKind.FORCE_IN
        is_willing = fits and (ordered is None or is_forced) and not self.is_asleep(now)
        is_stuck = self.is_stuck(now)
        unwell_at = self.unwell_at
        if is_stuck and self.sample is not None:
            unwell_at = min(unwell_at, self.sample.taken_at - self.sample.stalled_s)
        return Member(
            is_willing,
            health.state,
            health.was_healthy,
            health.can_connect,
            self.sheet,
            self.latch.holds(now),
            self.latch.frees_at(now),
            unwell_at,
            is_forced,
            self._ends(now),
            is_stuck,
        )

    def _ends(self, now: float) -> float:
        """When what an operator wants of it is over, or what its sample says of it is not known any more."""
        ends = FOR_EVER
        if self.order is not None and self.order.until > now:
            ends = self.order.until
        if self.sample is not None and (self.is_stuck(now) or self.is_asleep(now)):
            ends = min(ends, self.sample.taken_at + SAMPLE_FRESH_S)
        return ends
