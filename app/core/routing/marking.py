"""Evidence about a worker -> what is held against it, and who must hear of it."""

from app.core.fleet.commands import Command, Probe, TellMark
from app.core.fleet.events import MarkTold
from app.core.fleet.reasons import MarkKind
from app.core.fleet.rng import Rng
from app.core.overload.evidence import FAILURE_WEIGHT, MARKED_AS, Evidence
from app.core.overload.marks import JITTER, Mark
from app.core.routing.worker import WorkerState

NOTHING: tuple[Command, ...] = ()


class Marking:
    """Of one router: numbers its marks, and draws the jitter of their leases."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._number = 0

    def take(
        self, state: WorkerState, evidence: Evidence, now: float, retry_after_s: float | None = None
    ) -> tuple[Command, ...]:
        """What one exchange with the worker said of it. `state.sheet` is another one after a mark."""
        accrual = state.accrual
        if evidence is Evidence.SUCCESS:
            accrual.succeeded(now)
        elif evidence is Evidence.OVERLOAD:
            return self._mark(state, MarkKind.OVERLOAD, now, retry_after_s)
        elif evidence is Evidence.UNREACHABLE:
            is_enough = accrual.connect_failed()
            probe = Probe(state.worker.id)
            return (*(self._mark(state, MarkKind.UNREACHABLE, now) if is_enough else NOTHING), probe)
        elif evidence in FAILURE_WEIGHT:
            is_enough = accrual.failed(now, FAILURE_WEIGHT[evidence])
            probes = (Probe(state.worker.id),) if evidence is Evidence.AMBIGUOUS else NOTHING
            return (*(self._mark(state, MARKED_AS[evidence], now) if is_enough else NOTHING), *probes)
        return NOTHING

    def failed_trial(
        self, state: WorkerState, evidence: Evidence, now: float, retry_after_s: float | None
    ) -> tuple[Command, ...]:
        """As `take`, when the exchange was a trial: once is enough then."""
        if evidence not in MARKED_AS:
            return self.take(state, evidence, now)
        return self._mark(state, MARKED_AS[evidence], now, retry_after_s)

    def probe_failed(self, state: WorkerState, now: float, *, reachable: bool) -> tuple[Command, ...]:
        if state.accrual.probe_failed(reachable=reachable):
            return self._mark(state, MarkKind.UNREACHABLE, now)
        return NOTHING

    def _mark(
        self, state: WorkerState, kind: MarkKind, now: float, retry_after_s: float | None = None
    ) -> tuple[Command, ...]:
        self._number += 1
        jitter = 1 - JITTER + 2 * JITTER * self._rng.random()
        state.hold(state.sheet.marked(kind, now, number=self._number, jitter=jitter, retry_after_s=retry_after_s))
        mark: Mark = state.sheet.marks[-1]
        worker = state.worker
        told = MarkTold(worker.id, worker.incarnation, "", kind, mark.number, mark.after_seq, mark.until)
        return (TellMark(told),)
