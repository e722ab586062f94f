"""Runs the router on live events, and walks its rankings until a worker answers."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from app.core.fleet.commands import Command, Dismiss, Dispatch, Enqueue, Probe, Refuse, TellMark
from app.core.fleet.events import (
    AnswerBegan,
    DispatchAccepted,
    DispatchFailed,
    Event,
    MarkTold,
    RequestArrived,
    RequestFinished,
    RequestLeft,
    TimePassed,
)
from app.core.fleet.exchange import Call, UpstreamError, is_json, retry_after_s
from app.core.fleet.reasons import ChoiceReason, Outcome, WaitEnd
from app.core.fleet.request import RequestFacts
from app.core.overload.evidence import Evidence, of_status
from app.core.router import Router
from app.runtime.ports import Answer, Telemetry, Upstream

log = logging.getLogger("warmset.gateway")

TICK_S = 0.05
"""How often time passes for requests that wait."""


class Exchange:
    """A request that a worker is answering. Exactly one `finish` gives back what it holds.

    waited_s: for its turn, before it was sent.
    """

    __slots__ = ("_gateway", "answer", "dispatch", "waited_s")

    def __init__(self, gateway: "Gateway", dispatch: Dispatch, answer: Answer, waited_s: float) -> None:
        self._gateway = gateway
        self.dispatch = dispatch
        self.answer = answer
        self.waited_s = waited_s

    @property
    def dispatches(self) -> tuple[Dispatch, ...]:
        return (self.dispatch,)

    def began(self) -> None:
        """The first byte of the answer is there."""
        if self.dispatch.reason is ChoiceReason.TRIAL and self.answer.status < 400:
            self._gateway.handle(AnswerBegan(self.dispatch.token))

    def finish(self, outcome: Outcome) -> None:
        """Release the load, and the worker's connection unless its answer is complete."""
        self.answer.close()
        self._gateway.finish(self.dispatch, outcome)


class Gateway:
    """One per process. `clock` gives monotonic seconds."""

    def __init__(self, router: Router, upstream: Upstream, telemetry: Telemetry, clock: Callable[[], float]) -> None:
        self.router = router
        self._upstream = upstream
        self._telemetry = telemetry
        self._clock = clock
        self._waiting: dict[int, asyncio.Future[Dispatch | Refuse]] = {}
        self._probe_now: Callable[[str], None] = lambda worker_id: None
        self._tell_mark: Callable[[MarkTold], None] = lambda mark: None

    def on_probe(self, probe_now: Callable[[str], None]) -> None:
        """Say who carries out Probe commands."""
        self._probe_now = probe_now

    def on_mark(self, tell_mark: Callable[[MarkTold], None]) -> None:
        """Say who tells the other routers of our marks."""
        self._tell_mark = tell_mark

    def handle(self, event: Event) -> None:
        """Take an event that is not about a request: health, load, workers that come and go."""
        self._execute(self.router.handle(event, self._clock()))

    async def open(self, facts: RequestFacts, call: Call) -> Exchange | Refuse:
        """Have a worker answer `call`: walk the ranking until one does. Cancelling it releases everything.

        An answer that says that its worker takes no more is passed on only where the router knows nobody better.
        """
        verdict = self._decide(facts, RequestArrived(facts))
        asked, service = call.target, facts.service
        waited_s = 0.0
        while not isinstance(verdict, Refuse):
            if isinstance(verdict, Enqueue):
                began = self._clock()
                verdict = await self._wait(facts, verdict.token)
                waited_s += self._clock() - began
                continue
            if service is not None:
                path = verdict.worker.engine.path_of(service)
                call.target = asked if path == service.path else path.encode() + asked[len(service.path) :]
            try:
                answer = await self._upstream.send(verdict.worker, call)
            except UpstreamError as error:
                verdict = self._failed(facts, verdict, error)
            except BaseException:
                self.finish(verdict, Outcome.CLIENT_GONE)
                raise
            else:
                elsewhere = self._accepted(facts, verdict, answer)
                if elsewhere is None:
                    return Exchange(self, verdict, answer, waited_s)
                answer.close()
                verdict = elsewhere
        return verdict

    def _accepted(self, facts: RequestFacts, dispatch: Dispatch, answer: Answer) -> Dispatch | None:
        """Another worker to ask instead, where the head of the answer says no and the router knows one."""
        status = answer.status
        accepted = DispatchAccepted(dispatch.token, status)
        if status >= 400:
            accepted.retry_after_s, accepted.is_engines_own = retry_after_s(answer.headers), is_json(answer.headers)
        commands = self.router.handle(accepted, self._clock())
        if status >= 400 and of_status(status) is Evidence.CONFIG:
            # A client's own credentials never reach a worker, so an operator must act.
            log.error(
                "worker refuses the gateway's own credentials",
                extra={"request_id": facts.request_id, "worker": dispatch.worker.id, "status": status},
            )
        elsewhere = commands[-1] if commands else None
        if not isinstance(elsewhere, Dispatch):
            self._execute(commands)
            return None
        self._execute(commands[:-1])
        log.warning(
            "worker takes no more",
            extra={"request_id": facts.request_id, "worker": dispatch.worker.id, "status": status},
        )
        self._telemetry.decided(facts, elsewhere)
        return elsewhere

    async def _wait(self, facts: RequestFacts, token: int) -> Dispatch | Refuse:
        """Until it is this request's turn, or its time is over. Cancelling it leaves the queue."""
        future: asyncio.Future[Dispatch | Refuse] = asyncio.get_running_loop().create_future()
        self._waiting[token] = future
        began, end = self._clock(), WaitEnd.LEFT
        try:
            verdict = await future
            end = WaitEnd.DISPATCHED if isinstance(verdict, Dispatch) else WaitEnd.DISMISSED
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and isinstance(given := future.result(), Dispatch):
                self.finish(given, Outcome.CLIENT_GONE)  # its turn came in the same moment
            else:
                self.handle(RequestLeft(token))
            raise
        finally:
            self._waiting.pop(token, None)
            self._telemetry.waited(facts, self._clock() - began, end)
        self._telemetry.decided(facts, verdict)
        return verdict

    async def tick(self) -> None:
        """Let time pass for those who wait."""
        if self._waiting:
            self.handle(TimePassed())

    def _failed(self, facts: RequestFacts, dispatch: Dispatch, error: UpstreamError) -> Dispatch | Enqueue | Refuse:
        failed = dispatch.worker.id
        self._telemetry.upstream_failed(failed, error.failure)
        log.warning(
            "worker gave no answer", extra={"request_id": facts.request_id, "worker": failed, "cause": str(error)}
        )
        verdict = self._decide(facts, DispatchFailed(dispatch.token, error.failure))
        if isinstance(verdict, Refuse):
            verdict.detail = f"{verdict.detail}; {error}"
        return verdict

    def finish(self, dispatch: Dispatch, outcome: Outcome) -> None:
        """The dispatch is over, one way or another: give back its load."""
        self.handle(RequestFinished(dispatch.token, outcome))
        self._telemetry.request_finished(dispatch.worker.id, outcome)

    def _decide(self, facts: RequestFacts, event: RequestArrived | DispatchFailed) -> Dispatch | Enqueue | Refuse:
        *others, verdict = self.router.handle(event, self._clock())
        self._execute(others)
        assert isinstance(verdict, Dispatch | Enqueue | Refuse), "the verdict is the router's last command"
        if not isinstance(verdict, Enqueue):
            self._telemetry.decided(facts, verdict)
        return verdict

    def _execute(self, commands: Iterable[Command]) -> None:
        for command in commands:
            if isinstance(command, Probe):
                self._probe_now(command.worker_id)
            elif isinstance(command, TellMark):
                self._telemetry.marked(command.mark.worker_id, command.mark.kind)
                self._tell_mark(command.mark)
            elif isinstance(command, Dispatch):
                self._called(command.token, command)
            elif isinstance(command, Dismiss):
                self._called(command.token, command.refuse)

    def _called(self, token: int, verdict: Dispatch | Refuse) -> None:
        """Whoever waits under that token need not wait any more."""
        future = self._waiting.get(token)
        if future is not None and not future.done():
            future.set_result(verdict)
        elif isinstance(verdict, Dispatch):
            self.finish(verdict, Outcome.CLIENT_GONE)
