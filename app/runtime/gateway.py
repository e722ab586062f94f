"""Runs the router on live events, and walks its rankings until a worker answers."""

import logging
from collections.abc import Callable, Iterable

from app.core.fleet.commands import Command, Dispatch, Probe, Refuse
from app.core.fleet.events import DispatchAccepted, DispatchFailed, Event, RequestArrived, RequestFinished
from app.core.fleet.exchange import Call, UpstreamError
from app.core.fleet.reasons import Outcome
from app.core.fleet.request import RequestFacts
from app.core.router import Router
from app.runtime.ports import Answer, Telemetry, Upstream

log = logging.getLogger("warmset.gateway")


class Exchange:
    """A request that a worker is answering. Exactly one `finish` gives back what it holds."""

    __slots__ = ("_gateway", "answer", "dispatch")

    def __init__(self, gateway: "Gateway", dispatch: Dispatch, answer: Answer) -> None:
        self._gateway = gateway
        self.dispatch = dispatch
        self.answer = answer

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
        self._probe_now: Callable[[str], None] = lambda worker_id: None

    def on_probe(self, probe_now: Callable[[str], None]) -> None:
        """Say who carries out Probe commands."""
        self._probe_now = probe_now

    def handle(self, event: Event) -> None:
        """Take an event that is not about a request: health, load, workers that come and go."""
        self._execute(self.router.handle(event, self._clock()))

    async def open(self, facts: RequestFacts, call: Call) -> Exchange | Refuse:
        """Have a worker answer `call`: walk the ranking until one does. Cancelling it releases everything."""
        verdict = self._decide(facts, RequestArrived(facts))
        asked, service = call.target, facts.service
        while isinstance(verdict, Dispatch):
            if service is not None:
                path = verdict.worker.engine.path_of(service)
                call.target = asked if path == service.path else path.encode() + asked[len(service.path) :]
            try:
                answer = await self._upstream.send(verdict.worker, call)
            except UpstreamError as error:
                failed = verdict.worker.id
                self._telemetry.upstream_failed(failed, error.failure)
                log.warning(
                    "worker gave no answer",
                    extra={"request_id": facts.request_id, "worker": failed, "cause": str(error)},
                )
                verdict = self._decide(facts, DispatchFailed(verdict.token, error.failure))
                if isinstance(verdict, Refuse):
                    verdict.detail = f"{verdict.detail}; {error}"
            except BaseException:
                self.finish(verdict, Outcome.CLIENT_GONE)
                raise
            else:
                self.handle(DispatchAccepted(verdict.token))
                return Exchange(self, verdict, answer)
        return verdict

    def finish(self, dispatch: Dispatch, outcome: Outcome) -> None:
        """The dispatch is over, one way or another: give back its load."""
        self.handle(RequestFinished(dispatch.token, outcome))
        self._telemetry.request_finished(dispatch.worker.id, outcome)

    def _decide(self, facts: RequestFacts, event: RequestArrived | DispatchFailed) -> Dispatch | Refuse:
        *others, verdict = self.router.handle(event, self._clock())
        self._execute(others)
        assert not isinstance(verdict, Probe), "the verdict is the router's last command"
        self._telemetry.decided(facts, verdict)
        return verdict

    def _execute(self, commands: Iterable[Command]) -> None:
        for command in commands:
            if isinstance(command, Probe):
                self._probe_now(command.worker_id)
