"""Watches one worker: is it healthy, what does it do, what does it serve, and is it still the same process."""

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from app.core.fleet.address import address_in
from app.core.fleet.engine import Engine
from app.core.fleet.events import Event, HealthReported, LoadSampled, WorkerSeen
from app.core.fleet.load import LoadSample
from app.core.fleet.registry import Registration
from app.core.fleet.rng import Rng
from app.core.fleet.worker import Worker
from app.core.overload.progress import Progress
from app.signals.control import NoReply, StartTask, WorkerControl
from app.signals.descriptions import Malformed, read_models, read_version, same_models
from app.signals.destinations import Destinations
from app.signals.inquiry import Inquiry, inquire
from app.signals.pin import PinnedControl
from app.signals.vllm_metrics import EngineMetrics, read_metrics

log = logging.getLogger("warmset.signals")

UNHEALTHY_INTERVAL_S = 1.0
"""Pause between probes of a worker that failed one, until two in a row are good."""
PROBE_GAP_S = 0.05
"""Least pause between two probes of a worker, however many are asked for."""
JITTER = 0.1
"""Share by which each pause between probes varies, so that the workers of a fleet drift apart."""

Said = TypeVar("Said")


@dataclass(frozen=True, slots=True)
class MonitorSettings:
    """Seconds between the ends and beginnings of turns, and the limit of each exchange with a worker.

    paths: those of the gateway, of which each worker is asked whether it serves them.
    """

    health_check_interval_s: float = 5.0
    health_check_timeout_s: float = 5.0
    load_interval_s: float = 1.0
    describe_interval_s: float = 10.0
    worker_api_key: str | None = field(default=None, repr=False)
    paths: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class MonitorContext:
    """What all monitors share.

    destinations: looks names of workers up, and says where workers may be. tls: how https workers are verified, see
    control.tls_context(). emit: takes each event, at once; it must not raise.
    own_in_flight: requests of this process on a worker, by id. start: runs a coroutine in a task that somebody holds
    (`runtime.tasks.Tasks.start`). clock: monotonic seconds.
    """

    destinations: Destinations
    tls: ssl.SSLContext
    settings: MonitorSettings
    emit: Callable[[Event], None]
    own_in_flight: Callable[[str], int]
    start: StartTask
    clock: Callable[[], float]
    rng: Rng


class WorkerMonitor:
    """Two loops over one registration: probes, and scrapes from the first good probe on. Neither ever ends by itself.

    worker: as last told to `emit`. Its incarnation is the registration's, with the engine's own start time once that is
    known, and the address when the URL has a name: "r1.1796070480.15@10.0.0.7". A restarted engine at the same address,
    or whoever is at another address of the name, is thereby another one, and what is known of the old one is dropped.
    metrics: the last reading, or None. errors: exchanges that failed, by kind.
    """

    def __init__(self, registration: Registration, context: MonitorContext) -> None:
        self.registration = registration
        address = self._own_address = address_in(registration.url)
        self.worker = Worker(registration.id, registration.url, registration.incarnation, address=address)
        self.metrics: EngineMetrics | None = None
        self.errors: Counter[str] = Counter()
        settings = context.settings
        self._context = context
        self._settings = settings
        self._pin = PinnedControl(
            registration.url,
            context.destinations,
            self._control,
            start=context.start,
            clock=context.clock,
            limit_s=settings.health_check_timeout_s,
        )
        self._known_at = address
        self._failing: set[str] = set()
        self._tasks: list[asyncio.Task[Any]] = []
        self._wake = asyncio.Event()
        self._met = asyncio.Event()
        self._good_probes = 0
        self._process_start: float | None = None
        self._several_processes = False
        self._counted = ""
        self._samples = 0
        self._progress = Progress()
        self._describe_at = float("-inf")
        self._inquiry: Inquiry | None = None

    def begin(self, delay_s: float) -> None:
        """Tell of the worker, and start watching it after `delay_s`."""
        self._emit(WorkerSeen(self.worker))
        name = self.registration.id
        self._tasks = [
            self._context.start(self._probe_loop(delay_s), f"probe {name}"),
            self._context.start(self._scrape_loop(), f"scrape {name}"),
        ]

    def rename(self, registration: Registration) -> None:
        """The same worker under another incarnation: what is known of it is told anew, and nothing is asked again."""
        self.registration = registration
        self.worker = replace(self.worker, incarnation=self._incarnation())
        self._emit(WorkerSeen(self.worker))
        if self._good_probes:
            self._report(healthy=True, reachable=True)

    @property
    def address_problem(self) -> str | None:
        """Why its name, when it was looked up last, said nothing of use; None when it did."""
        return self._pin.problem

    def probe_now(self) -> None:
        """Probe without waiting for the next turn. Any number of calls while a probe is under way make one more."""
        self._wake.set()

    def end(self) -> "asyncio.Task[None]":
        """Stop; nothing is emitted after this. The task that is returned ends when all connections are closed."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        return self._context.start(self._pin.close(), f"end watching {self.registration.id}")

    # Probes

    async def _probe_loop(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        while True:
            self._wake.clear()
            await self._turn("health", self._probe_turn)
            await asyncio.sleep(PROBE_GAP_S)
            pause_s = self._settings.health_check_interval_s
            if self._good_probes < 2:
                pause_s = min(pause_s, UNHEALTHY_INTERVAL_S)
            pause_s *= 1 - JITTER + 2 * JITTER * self._context.rng.random()
            try:
                async with asyncio.timeout(max(0.0, pause_s - PROBE_GAP_S)):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _probe_turn(self) -> None:
        healthy, reachable = await self._probe()
        if self._pin.address != self._known_at:
            self._moved()
        if not healthy:
            self._good_probes = 0
            self._report(healthy=False, reachable=reachable)
            return
        if self._good_probes == 0:
            # First contact, or back after a failure. Learn which process this is before anything is said of it.
            await self._turn("load", self._scrape)
            self._inquiry = None
            self._describe_at = float("-inf")
        another = self._incarnation() != self.worker.incarnation
        if another:
            self._inquiry = None
        unknown = another or not self.worker.models
        if unknown:
            await self._describe()
        self._good_probes += 1
        self._report(healthy=True, reachable=True)
        self._met.set()
        if not unknown and self._context.clock() >= self._describe_at:
            await self._describe()

    async def _probe(self) -> tuple[bool, bool]:
        """Healthy, reachable."""
        answer = await self._ask_health()
        if self._pin.problem is None:
            self._succeeded("address")
        else:
            self._failed("address", self._pin.problem)
        return answer

    async def _ask_health(self) -> tuple[bool, bool]:
        try:
            # A worker that is well stays where it is. See pin.py.
            reply = await (self._pin.get("/health") if self._good_probes else self._pin.seek("/health"))
        except NoReply as error:
            self._failed("health", str(error))
            return False, error.reachable
        if reply.status != 200:
            self._failed("health", f"/health answered {reply.status}")
            return False, True
        self._succeeded("health")
        return True, True

    def _moved(self) -> None:
        """Its name stands for another address now: nothing that is known of the process at the old one holds."""
        self._known_at = self._pin.address
        self._process_start = None
        self._several_processes = False
        self.metrics = None
        self._inquiry = None
        self._describe_at = float("-inf")
        if self.worker.address:
            log.warning("worker moved to %s", self._known_at, extra=self._extra("address"))
        self.worker = replace(
            self.worker, incarnation=self._incarnation(), address=self._known_at, models={}, engine=Engine()
        )
        self._emit(WorkerSeen(self.worker))

    def _report(self, *, healthy: bool, reachable: bool) -> None:
        self._emit(HealthReported(self.worker.id, self.worker.incarnation, healthy, reachable))

    # What it is

    async def _describe(self) -> None:
        """Ask for models and version, and tell when they or the incarnation are not what was told last."""
        asked = self._incarnation()
        models, version = await self._ask_all()
        if self._incarnation() != asked:
            # A scrape saw another process meanwhile: what was said may be its predecessor's.
            self._inquiry = None
            models, version = await self._ask_all()
        # A list that could not be read is asked for again at the next probe.
        self._describe_at = self._context.clock() + self._settings.describe_interval_s if models is not None else 0.0
        before, incarnation = self.worker, self._incarnation()
        # Of another process nothing is kept. But one whose start time is learnt late was the same all along.
        kept = before if before.incarnation in (incarnation, self._place()) else None
        if models is None:
            models = dict(kept.models) if kept else {}
        elif same_models(models, before.models):
            models = dict(before.models)
        engine = self._engine(version, kept.engine if kept else Engine())
        worker = replace(before, incarnation=incarnation, models=models, engine=engine)
        if worker != before:
            self.worker = worker
            self._emit(WorkerSeen(worker))

    def _engine(self, version: str | None, before: Engine) -> Engine:
        """What is known of the engine now; what it did not say this time stays as it was."""
        metrics, inquiry = self.metrics or EngineMetrics(), self._inquiry or Inquiry(before.paths, before.revision)
        return Engine(
            metrics.engine or before.name,
            before.version if version is None else version,
            inquiry.revision,
            before.spec_decode if metrics.spec_decode is None else metrics.spec_decode,
            inquiry.paths,
        )

    async def _ask_all(self) -> tuple[dict[str, bytes] | None, str | None]:
        """Its models and its version; once for each process also what it serves."""
        models = await self._ask("/v1/models", "models", read_models)
        # A worker that does not answer the first question in time is not made to hold up its probes with others.
        if models is None:
            return None, None
        version = await self._ask("/version", "version", read_version)
        if self._inquiry is None:
            try:
                self._inquiry = await inquire(self._pin.get, self._settings.paths, models)
            except NoReply as error:
                self._failed("paths", str(error))
            else:
                self._succeeded("paths")
        return models, version

    async def _ask(self, path: str, kind: str, read: Callable[[bytes], Said]) -> Said | None:
        """What the worker says, or None when it does not."""
        try:
            reply = await self._pin.get(path)
            if reply.status != 200:
                raise Malformed(f"{path} answered {reply.status}")
            said = read(reply.body)
        except (NoReply, Malformed) as error:
            self._failed(kind, str(error))
            return None
        self._succeeded(kind)
        return said

    def _incarnation(self) -> str:
        start = self._process_start
        return self._place("" if start is None or self._several_processes else f".{start:.2f}")

    def _place(self, start: str = "") -> str:
        """The registration, the start of the process there, and the address where its name does not say that."""
        where = "" if self._known_at == self._own_address else f"@{self._known_at}"
        return f"{self.registration.incarnation}{start}{where}"

    def _learn_start(self, start: float | None) -> None:
        """A later start is another process. An earlier one is not a restart: several processes answer in turn, and
        what they say of their start is then worth nothing."""
        if start is None or self._several_processes:
            return
        if self._process_start is None or start > self._process_start:
            self._process_start = start
        elif start < self._process_start:
            self._several_processes = True
            log.warning("several processes answer at one address: restarts will not be seen", extra=self._extra())

    # Scrapes

    async def _scrape_loop(self) -> None:
        await self._met.wait()
        interval_s = self._settings.load_interval_s
        await asyncio.sleep(interval_s * self._context.rng.random())
        while True:
            begun = self._context.clock()
            await self._turn("load", self._scrape)
            await asyncio.sleep(max(0.0, interval_s - (self._context.clock() - begun)))

    async def _scrape(self) -> None:
        worker_id, address = self.worker.id, self._pin.address
        taken_at, own = self._context.clock(), self._context.own_in_flight(worker_id)
        try:
            reply = await self._pin.get("/metrics")
        except NoReply as error:
            self._failed("load", str(error))
            return
        if address != self._pin.address:
            return  # from where it was before
        if reply.status != 200:
            self._failed("load", f"/metrics answered {reply.status}")
            return
        metrics = self.metrics = read_metrics(reply.body)
        self._learn_start(metrics.process_start)
        if self._incarnation() != self.worker.incarnation:
            # The probe loop tells of the new process first; until then there is nobody whom this sample is about.
            self._wake.set()
            return
        if metrics.running is None or metrics.waiting is None:
            self._failed("load", "/metrics does not say what is running and waiting")
            return
        self._succeeded("load")
        if self._counted != self.worker.incarnation:
            self._counted, self._samples, self._progress = self.worker.incarnation, 0, Progress()
        self._samples += 1
        is_busy = metrics.running + metrics.waiting > 0
        stalled_s = self._progress.sample(metrics.steps, taken_at, is_busy=is_busy)
        sample = LoadSample(
            taken_at,
            metrics.running,
            metrics.waiting,
            own,
            metrics.kv_usage,
            self._samples,
            stalled_s,
            metrics.is_asleep,
        )
        self._emit(LoadSampled(worker_id, self.worker.incarnation, sample))

    # How

    def _control(self, address: str) -> WorkerControl:
        return WorkerControl(
            self.registration.url,
            address,
            api_key=self._settings.worker_api_key,
            timeout_s=self._settings.health_check_timeout_s,
            tls=self._context.tls,
            start=self._context.start,
        )

    async def _turn(self, kind: str, work: Callable[[], Awaitable[None]]) -> None:
        """One turn that cannot end its loop. What it raises is a fault of ours: a worker's are told by their kind."""
        fault = f"{kind} turn"
        try:
            await work()
        except Exception as error:
            if fault not in self._failing:
                log.exception("a turn of watching a worker failed", extra=self._extra(kind))
            self._failed(fault, type(error).__name__)
        else:
            self._succeeded(fault)

    def _emit(self, event: Event) -> None:
        self._context.emit(event)

    def _failed(self, kind: str, why: str) -> None:
        self.errors[kind] += 1
        if kind not in self._failing:
            self._failing.add(kind)
            log.warning("worker %s: %s", kind, why, extra=self._extra(kind))

    def _succeeded(self, kind: str) -> None:
        if kind in self._failing:
            self._failing.discard(kind)
            log.info("worker %s: good again", kind, extra=self._extra(kind))

    def _extra(self, kind: str = "identity") -> dict[str, str]:
        return {"worker": self.worker.id, "signal": kind}
