"""Has several workers answer the parts of one batch at the same time, and makes one answer of theirs.

To who relays it, that is an exchange like any other. The parts are requests of their own to the router, so each goes
where the least is to do, and each is judged for itself; but they are of one mind: when one gets no answer, or an error,
the others are given up, and that is the answer to the whole.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from app.api.batches import Part, PartAnswer, Unfit, cut, join
from app.api.endpoints import ProxyEndpoint
from app.api.errors import EdgeReason
from app.api.facts import Inbound, Rejected
from app.api.intake import Overfull
from app.api.options import ProxyOptions
from app.core.fleet.commands import Dispatch, Refuse
from app.core.fleet.exchange import Call, Header, StreamBroken
from app.core.fleet.reasons import Failure, Outcome
from app.core.fleet.request import RequestFacts
from app.core.routing.pool import Pool
from app.runtime.gateway import Exchange, Gateway

AT_ONCE = 16
EACH = 2
"""Parts of one batch that are under way at the same time, at most, and for each worker of the model: one that is being
answered and one that follows. More would only fill queues, theirs and ours, before those of other clients."""


PIECE = 1 << 20
"""Bytes of an answer that are passed on at a time: a client that reads slowly must not have us keep it twice."""


def cut_up(inbound: Inbound, endpoint: ProxyEndpoint, pools: Mapping[str, Pool], options: ProxyOptions) -> list[Part]:
    """The parts of a batch that several workers may answer; none when it goes to one as it is.

    Which of a model's workers may take one now is the router's to say, of each part as it goes.
    """
    pool = pools.get(inbound.facts.model)
    if pool is None or len(pool.members) < 2:
        return []
    return cut(inbound.body, inbound.document, endpoint.splits, options.split_batches)


class WholeAnswer:
    """An answer that has arrived as a whole. See app.runtime.ports.Answer."""

    __slots__ = ("_at", "_body", "headers", "is_ended_by_close", "status")

    def __init__(self, status: int, headers: list[Header], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self._body = body
        self._at = 0
        self.is_ended_by_close = False

    @property
    def is_complete(self) -> bool:
        return self._at >= len(self._body)

    async def read(self) -> bytes:
        start, self._at = self._at, self._at + PIECE
        return self._body[start : self._at]

    def close(self) -> None:
        self._body = b""


class FannedOut:
    """A batch that was answered. Its workers are done with it, so there is nothing to give back.

    waited_s: the longest that one of its parts waited for its turn.
    """

    __slots__ = ("answer", "dispatches", "waited_s")

    def __init__(self, answer: WholeAnswer, dispatches: Sequence[Dispatch], waited_s: float) -> None:
        self.answer = answer
        self.dispatches = dispatches
        self.waited_s = waited_s

    @property
    def dispatch(self) -> Dispatch:
        """The one that the whole is counted under."""
        return self.dispatches[0]

    def began(self) -> None:
        """Each part has told of itself."""

    def finish(self, outcome: Outcome) -> None:
        self.answer.close()


class _Ended(Exception):
    """A part got no answer that the whole could be made of. instead: what the whole gets."""

    def __init__(self, instead: FannedOut | Refuse) -> None:
        super().__init__()
        self.instead = instead


class FanOut:
    """One batch. hold: count bytes of answers; raises Overfull."""

    def __init__(self, gateway: Gateway, facts: RequestFacts, call: Call, hold: Callable[[int], None]) -> None:
        self._gateway = gateway
        # By load alone: a key would lead every part to the same worker.
        self._facts = replace(facts, key=None)
        self._call = call
        self._hold = hold
        self._dispatches: dict[int, Dispatch] = {}
        self._waited_s = 0.0

    async def open(self, parts: Sequence[Part]) -> FannedOut | Refuse | Rejected:
        """Have all parts answered, and join the answers. Cancelling gives everything back."""
        try:
            return await self._open(parts)
        except StreamBroken as broken:
            return Rejected(EdgeReason.STREAM_BROKEN, str(broken))
        except Unfit as unfit:
            return Rejected(EdgeReason.PARTS_UNFIT, str(unfit))
        except Overfull:
            return Rejected(EdgeReason.BATCH_TOO_LARGE, f"{len(parts)} parts")

    async def _open(self, parts: Sequence[Part]) -> FannedOut | Refuse:
        self._facts.tokens = max(1, self._facts.tokens // len(parts))
        pool = self._gateway.router.pools.get(self._facts.model)
        turns = asyncio.Semaphore(min(AT_ONCE, EACH * len(pool.members) if pool is not None else 1))
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._take(number, part, turns)) for number, part in enumerate(parts)]
        except ExceptionGroup as failed:
            error = failed.exceptions[0]
            if not isinstance(error, _Ended):
                raise error from None
            return error.instead
        answers = [task.result() for task in tasks]
        headers, body = join(answers)
        dispatches = [self._dispatches[number] for number in sorted(self._dispatches)]
        return FannedOut(WholeAnswer(answers[0].status, headers, body), dispatches, self._waited_s)

    async def _take(self, number: int, part: Part, turns: asyncio.Semaphore) -> PartAnswer:
        async with turns:
            opened = await self._gateway.open(self._facts, self._part(number, part.body))
            if isinstance(opened, Refuse):
                raise _Ended(opened)
            answer = await self._read(opened, part.size)
            if answer.status != 200:
                whole = WholeAnswer(answer.status, list(answer.headers), answer.body)
                raise _Ended(FannedOut(whole, [opened.dispatch], opened.waited_s))
            self._dispatches[number] = opened.dispatch
            self._waited_s = max(self._waited_s, opened.waited_s)
            return answer

    async def _read(self, opened: Exchange, size: int) -> PartAnswer:
        answer = opened.answer
        pieces: list[bytes] = []
        outcome = Outcome.CLIENT_GONE  # of the whole's or, for a part that is given up, of the part's: it is cancelled
        try:
            while not answer.is_complete:
                piece = await answer.read()
                if piece and not pieces:
                    opened.began()
                self._hold(len(piece))
                pieces.append(piece)
            outcome = Outcome.SERVED
        except StreamBroken as broken:
            outcome = Outcome.TIMED_OUT if broken.failure is Failure.TIMEOUT else Outcome.BROKEN
            raise
        finally:
            opened.finish(outcome)
        return PartAnswer(size, answer.status, answer.headers, b"".join(pieces))

    def _part(self, number: int, body: bytes) -> Call:
        """The first goes under the id of the whole, which engines put into their answers."""
        call = self._call
        headers = [
            (name, value + b".%d" % number if number and name == b"x-request-id" else value)
            for name, value in call.headers
        ]
        return Call(call.method, call.target, headers, body)
