"""The queues of one router: who is let in, who must make room, and who has waited too long."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from app.core.fleet.commands import Dismiss, Dispatch, Refuse
from app.core.fleet.reasons import RefusalReason
from app.core.fleet.request import RequestFacts
from app.core.overload.queue import Queue, Waiting

WORTH_WAITING = (RefusalReason.NO_WORKERS, RefusalReason.OVERLOADED, RefusalReason.UNREACHABLE)
"""What may be otherwise in a moment."""

PAUSE_S = 0.5
"""Before a request whose workers could not be reached is tried again."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """timeout_s: longest wait, 0 when nobody waits. max_requests, max_tokens: that wait for one model at a time."""

    timeout_s: float = 0.0
    max_requests: int = 1024
    max_tokens: int = 4_000_000


class WaitingRoom:
    """queues: by model, those in which somebody waits."""

    __slots__ = ("_models", "_settings", "queues")

    def __init__(self, settings: QueueSettings) -> None:
        self._settings = settings
        self._models: dict[int, str] = {}
        self.queues: dict[str, Queue] = {}

    def takes(self, refusal: Refuse) -> bool:
        """Whether a request that got this refusal may wait instead."""
        return self._settings.timeout_s > 0 and refusal.reason in WORTH_WAITING

    def enter(self, token: int, facts: RequestFacts, since: float, now: float, pause_s: float = 0.0) -> list[Dismiss]:
        """Let a request in that arrived at `since`. Returns who may not wait any more; that may be itself."""
        patience_s = self._settings.timeout_s if facts.patience_s is None else facts.patience_s
        until = since + min(self._settings.timeout_s, patience_s)
        dismissed: list[Dismiss] = []
        queue = self.queues.setdefault(facts.model, Queue())
        while self._is_full(queue, facts):
            # Of an empty queue it is itself that is too large; there it may wait.
            yields = queue.yields_to(facts)
            token_out = token if yields is None else yields.token
            why = f"{len(queue)} requests with {queue.tokens} tokens wait for {facts.model!r}"
            dismissed.append(Dismiss(token_out, Refuse(RefusalReason.QUEUE_FULL, why)))
            if yields is None:
                return dismissed
            self.leave(token_out)
            queue = self.queues.setdefault(facts.model, queue)
        queue.put(Waiting(token, facts, since, until, now + pause_s))
        self._models[token] = facts.model
        return dismissed

    def _is_full(self, queue: Queue, facts: RequestFacts) -> bool:
        if not queue:
            return False
        return len(queue) >= self._settings.max_requests or queue.tokens + facts.tokens > self._settings.max_tokens

    def leave(self, token: int) -> None:
        """Nobody waits for it any more."""
        model = self._models.pop(token, None)
        if model is not None:
            self.queues[model].remove(token)
            self._tidy(model)

    def serve(
        self, now: float, place: Callable[[int, RequestFacts, float], Dispatch | Refuse]
    ) -> Iterator[Dispatch | Dismiss]:
        """Give what is free to whose turn it is, and dismiss who has waited too long.

        place: finds a worker for the request of that token, which arrived then.
        """
        for model, queue in list(self.queues.items()):
            # First: others of its tenant stand behind one whose time is over.
            for waiting in queue.expired(now):
                yield self._dismissed(queue, waiting, _waited_too_long(waiting, now))
            while (served := self._serve_one(queue, now, place)) is not None:
                yield served
            self._tidy(model)

    def _serve_one(
        self, queue: Queue, now: float, place: Callable[[int, RequestFacts, float], Dispatch | Refuse]
    ) -> Dispatch | Dismiss | None:
        refused: dict[object, str] = {}
        for waiting in queue.next():
            if waiting.not_before > now:
                continue
            if waiting.lane in refused:
                waiting.why = refused[waiting.lane]
                continue
            verdict = place(waiting.token, waiting.facts, waiting.since)
            if isinstance(verdict, Dispatch):
                queue.served(waiting)
                self._models.pop(waiting.token)
                return verdict
            if verdict.reason not in WORTH_WAITING:
                return self._dismissed(queue, waiting, verdict)
            refused[waiting.lane] = waiting.why = verdict.detail
            if len(refused) == len(queue.lanes):
                break
        return None

    def _dismissed(self, queue: Queue, waiting: Waiting, refuse: Refuse) -> Dismiss:
        queue.remove(waiting.token)
        self._models.pop(waiting.token)
        return Dismiss(waiting.token, refuse)

    def _tidy(self, model: str) -> None:
        if not self.queues[model]:
            del self.queues[model]


def _waited_too_long(waiting: Waiting, now: float) -> Refuse:
    why = f"; {waiting.why}" if waiting.why else ""
    return Refuse(RefusalReason.QUEUE_EXPIRED, f"waited {now - waiting.since:.1f} s{why}")
