"""The workers that one router knows, and the pools of models that they make."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from app.core.fleet.commands import Command
from app.core.fleet.events import (
    HealthReported,
    LoadSampled,
    MarkTold,
    WorkerGone,
    WorkerOrdered,
    WorkerSeen,
)
from app.core.fleet.order import Order
from app.core.fleet.pin import Pin
from app.core.overload.health import Health
from app.core.overload.marks import FOR_EVER, Mark
from app.core.overload.settings import OverloadSettings
from app.core.routing.marking import NOTHING, Marking
from app.core.routing.pool import ANY_ENGINE, Pool
from app.core.routing.worker import WorkerState

KNOWN_S = 600.0
"""For how long a model whose last worker went is one that there is: a rollout may take its time."""

KNOWN_MOST = 1000


class Pools:
    """Takes what is said of workers, and keeps the pools of their models as they stand.

    workers, pools: live, by id and by model. was_healthy: whether any pool ever had a worker that takes requests.
    on_gone: told of each worker that is forgotten. pins: model -> what may serve it.
    """

    def __init__(
        self,
        settings: OverloadSettings,
        marking: Marking,
        pins: Mapping[str, Pin],
        on_gone: Callable[[str], None] = lambda worker_id: None,
    ) -> None:
        self.workers: dict[str, WorkerState] = {}
        self.pools: dict[str, Pool] = {}
        self.was_healthy = False
        self._settings = settings
        self._marking = marking
        self._pins = pins
        self._on_gone = on_gone
        self._orders: dict[str, Order] = {}
        self._absent: dict[str, float] = {}
        self.handlers: dict[type, Callable[[Any, float], tuple[Command, ...]]] = {
            WorkerSeen: self._worker_seen,
            WorkerGone: self._worker_gone,
            WorkerOrdered: self._worker_ordered,
            HealthReported: self._health_reported,
            LoadSampled: self._load_sampled,
            MarkTold: self._mark_told,
        }

    # Asked by who routes

    def pool(self, model: str, now: float) -> Pool | None:
        """As it stands at `now`."""
        pool = self.pools.get(model)
        if pool is not None and now >= pool.changes_at:
            pool = self._put(model, pool.members, now)
        return pool

    def judge_due(self, now: float) -> None:
        """Have all pools be what they are at `now`."""
        for model in list(self.pools):
            self.pool(model, now)

    def judge_again(self, state: WorkerState, now: float) -> None:
        """What counts of this worker changed; membership did not."""
        if self.is_present(state):
            for model in state.worker.models:
                self._put(model, self.pools[model].members, now)

    def is_present(self, state: WorkerState) -> bool:
        return self.workers.get(state.worker.id) is state

    def takes(self, model: str, state: WorkerState) -> bool:
        """Whether a worker of an older ranking may still be asked: as its pool stands by now."""
        return self.is_present(state) and model in state.worker.models and self.pools[model].takes(state)

    def was_served(self, model: str, now: float) -> bool:
        """Whether there is such a model, although no worker has it just now."""
        return model in self._pins or now - self._absent.get(model, float("-inf")) <= KNOWN_S

    def present(self, worker_id: str, incarnation: str) -> WorkerState | None:
        state = self.workers.get(worker_id)
        return state if state is not None and state.worker.incarnation == incarnation else None

    # Told

    def _worker_seen(self, event: WorkerSeen, now: float) -> tuple[Command, ...]:
        worker = event.worker
        state = self.workers.get(worker.id)
        if state is None or state.worker.incarnation != worker.incarnation:
            before = state.worker.models if state is not None else {}
            self.workers[worker.id] = WorkerState(worker, self._settings, self._orders.get(worker.id))
            self._rebuild_pools([*before, *worker.models], now, is_loss=True)
        else:
            before, engine = state.worker.models, state.worker.engine
            state.worker = worker
            if list(before) != list(worker.models) or engine != worker.engine:
                self._rebuild_pools([*before, *worker.models], now)
        return NOTHING

    def _worker_gone(self, event: WorkerGone, now: float) -> tuple[Command, ...]:
        state = self.workers.get(event.worker_id)
        if state is not None and state.worker.incarnation == event.incarnation:
            del self.workers[event.worker_id]
            self._on_gone(event.worker_id)
            self._orders.pop(event.worker_id, None)
            self._rebuild_pools(list(state.worker.models), now, is_loss=True)
        return NOTHING

    def _worker_ordered(self, event: WorkerOrdered, now: float) -> tuple[Command, ...]:
        if event.order is not None:
            self._orders[event.worker_id] = event.order
        else:
            self._orders.pop(event.worker_id, None)
        state = self.workers.get(event.worker_id)
        if state is not None and state.order != event.order:
            state.order = event.order
            self.judge_again(state, now)
        return NOTHING

    def _health_reported(self, event: HealthReported, now: float) -> tuple[Command, ...]:
        state = self.present(event.worker_id, event.incarnation)
        if state is None:
            return NOTHING
        if not event.healthy:
            told = self._marking.probe_failed(state, now, reachable=event.reachable)
            if state.health.probe_failed(reachable=event.reachable) or told:
                if state.health.state is Health.UNHEALTHY:
                    state.unwell_at = min(now, state.unwell_at)
                self.judge_again(state, now)
            return told
        state.accrual.probe_succeeded()
        if state.health.probe_succeeded():
            # New, or back from where it was not well: either way its caches are cold and it is not known how it does.
            state.unwell_at = FOR_EVER
            state.hold(state.sheet.started(now))
            self.judge_again(state, now)
        return NOTHING

    def _load_sampled(self, event: LoadSampled, now: float) -> tuple[Command, ...]:
        state = self.present(event.worker_id, event.incarnation)
        if state is None or (state.sample is not None and event.sample.taken_at <= state.sample.taken_at):
            return NOTHING
        sheet, was_latched = state.sheet, state.latch.holds(now)
        was, was_stuck, was_asleep = sheet.state(now), state.is_stuck(now), state.is_asleep(now)
        state.sample = event.sample
        is_stuck, is_asleep = state.is_stuck(now), state.is_asleep(now)
        if (was_stuck and not is_stuck) or (was_asleep and not is_asleep):
            state.hold(sheet.started(now))
            sheet = state.sheet
        is_healthy = state.latch.sample(event.sample) and state.health.state is Health.HEALTHY and not is_stuck
        state.hold(sheet.observed(event.sample.seq, now, is_healthy=is_healthy))
        is_changed = (is_stuck, is_asleep) != (was_stuck, was_asleep)
        if is_changed or state.sheet.state(now) is not was or state.latch.holds(now) is not was_latched:
            self.judge_again(state, now)
        return NOTHING

    def _mark_told(self, event: MarkTold, now: float) -> tuple[Command, ...]:
        state = self.present(event.worker_id, event.incarnation)
        if state is not None:
            after_seq = event.after_seq if event.after_seq >= 0 else state.sheet.seq
            mark = Mark(event.reporter, event.kind, event.number, after_seq, event.until)
            sheet = state.sheet.told(mark, now)
            if sheet is not state.sheet:
                state.hold(sheet)
                self.judge_again(state, now)
        return NOTHING

    # Pools

    def _rebuild_pools(self, models: Iterable[str], now: float, *, is_loss: bool = False) -> None:
        """Membership of these models changed. is_loss: for a worker that went, not one that serves other models now."""
        for model in dict.fromkeys(models):
            members = tuple(self._members(model))
            if members:
                self._put(model, members, now)
                self._absent.pop(model, None)
            elif self.pools.pop(model, None) is not None and is_loss:
                self._absent[model] = now
                if len(self._absent) > KNOWN_MOST:
                    del self._absent[next(iter(self._absent))]

    def _members(self, model: str) -> Iterator[WorkerState]:
        return (self.workers[name] for name in sorted(self.workers) if model in self.workers[name].worker.models)

    def _put(self, model: str, members: tuple[WorkerState, ...], now: float) -> Pool:
        pool = self.pools[model] = Pool(model, members, now, self._pins.get(model, ANY_ENGINE))
        self.was_healthy = self.was_healthy or (bool(pool.eligible) and not pool.panic)
        return pool
