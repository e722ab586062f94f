"""Who is next, of the requests that wait for workers of one model.

Turns are given by start-time fair queueing (Goyal, Vin and Cheng, 1996), twice: between the classes of priority, whose
weights double from class to class, and within a class between tenants, alike. Both are measured in tokens, so that a
tenant with long prompts gets no more of the workers than one with short ones. A class or tenant that waits is thus
served at its share at least, whatever the others send: none starves. Within a tenant the first comes first.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush, nlargest
from operator import itemgetter

from app.core.fleet.priority import Priority
from app.core.fleet.request import RequestFacts

REMEMBERED = 1024
"""Flows whose lead is remembered, at least."""

WEIGHTS = {Priority.LOW: 1.0, Priority.NORMAL: 2.0, Priority.HIGH: 4.0, Priority.CRITICAL: 8.0}


@dataclass(slots=True, eq=False)
class Waiting:
    """since: when it arrived, until: when it is told that nobody could take it, not_before: when it may be tried.

    why: what was in its way when it was last tried, in words.
    """

    token: int
    facts: RequestFacts
    since: float
    until: float
    not_before: float = float("-inf")
    why: str = ""

    @property
    def lane(self) -> object:
        """Those of one lane are refused alike."""
        return self.facts.service, self.facts.needs_logits


class Turns:
    """Start-time fair queueing over named flows: who has got the least so far is next.

    A flow that comes, or comes back, begins where the others are: nothing is saved up.
    """

    __slots__ = ("_finish", "_now")

    def __init__(self) -> None:
        self._now = 0.0
        self._finish: dict[object, float] = {}

    def start(self, flow: object) -> float:
        """Where the flow's next turn stands; the least of all is next."""
        return max(self._now, self._finish.get(flow, 0.0))

    def served(self, flow: object, cost: float) -> None:
        self._now = self.start(flow)
        self._finish[flow] = self._now + cost

    def left(self, flow: object) -> None:
        """The flow waits no more. What it got beyond the others counts for as long as it would have taken them."""
        if self._finish.get(flow, 0.0) <= self._now:
            self._finish.pop(flow, None)
        elif len(self._finish) > 2 * REMEMBERED:
            # Of so many that came and went, those with the greatest lead matter.
            self._finish = dict(nlargest(REMEMBERED, self._finish.items(), key=itemgetter(1)))


@dataclass(slots=True, eq=False)
class _Class:
    """The requests of one priority, by tenant, in the order of their arrival."""

    tenants: dict[str, OrderedDict[int, Waiting]] = field(default_factory=dict)
    turns: Turns = field(default_factory=Turns)

    def next(self) -> Iterator[Waiting]:
        """The first of each tenant, in the order of their turns. More than the first of these is rarely asked for."""
        firsts = [next(iter(waiting.values())) for waiting in self.tenants.values()]
        first = min(firsts, key=self._turn)
        yield first
        yield from sorted((other for other in firsts if other is not first), key=self._turn)

    def _turn(self, waiting: Waiting) -> tuple[float, int]:
        return self.turns.start(waiting.facts.tenant), waiting.token


class Queue:
    """Of one model. tokens: estimated, of all that wait. lanes: how many wait for each kind of worker."""

    __slots__ = ("_by_token", "_classes", "_deadlines", "_turns", "lanes", "tokens")

    def __init__(self) -> None:
        self._classes: dict[Priority, _Class] = {}
        self._turns = Turns()
        self._by_token: dict[int, Waiting] = {}
        self._deadlines: list[tuple[float, int]] = []
        self.tokens = 0
        self.lanes: Counter[object] = Counter()

    def __len__(self) -> int:
        return len(self._by_token)

    def counts(self) -> dict[Priority, int]:
        """How many wait, by priority."""
        return {
            priority: sum(map(len, mine.tenants.values())) for priority, mine in self._classes.items() if mine.tenants
        }

    def put(self, waiting: Waiting) -> None:
        facts = waiting.facts
        mine = self._classes.setdefault(facts.priority, _Class())
        mine.tenants.setdefault(facts.tenant, OrderedDict())[waiting.token] = waiting
        self._by_token[waiting.token] = waiting
        heappush(self._deadlines, (waiting.until, waiting.token))
        self.tokens += facts.tokens
        self.lanes[waiting.lane] += 1

    def remove(self, token: int) -> Waiting | None:
        """It waits no more; None when it did not."""
        waiting = self._by_token.pop(token, None)
        if waiting is None:
            return None
        facts = waiting.facts
        mine = self._classes[facts.priority]
        del mine.tenants[facts.tenant][token]
        if not mine.tenants[facts.tenant]:
            del mine.tenants[facts.tenant]
            mine.turns.left(facts.tenant)
        self.tokens -= facts.tokens
        self.lanes[waiting.lane] -= 1
        if not self.lanes[waiting.lane]:
            del self.lanes[waiting.lane]
        return waiting

    def served(self, waiting: Waiting) -> None:
        """It has a worker: that was its class's and its tenant's turn."""
        facts = waiting.facts
        self._turns.served(facts.priority, facts.tokens / WEIGHTS[facts.priority])
        self._classes[facts.priority].turns.served(facts.tenant, facts.tokens)
        self.remove(waiting.token)

    def next(self) -> Iterator[Waiting]:
        """Whose turn it is, then who comes after, where the first cannot be served: the first of each tenant."""
        classes = [(priority, mine) for priority, mine in self._classes.items() if mine.tenants]
        for _, mine in sorted(classes, key=lambda each: (self._turns.start(each[0]), -each[0])):
            yield from mine.next()

    def expired(self, now: float) -> Iterator[Waiting]:
        """Those whose time is over."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now:
            until, token = heappop(deadlines)
            waiting = self._by_token.get(token)
            if waiting is not None and waiting.until == until:
                yield waiting

    def yields_to(self, facts: RequestFacts) -> Waiting | None:
        """Who must make room for a newcomer when there is none, or None when it is the newcomer who must go.

        The newest of the tenant that has the most waiting, in the lowest class: if that class is below the newcomer's,
        or if it is the same and the newcomer's tenant has less waiting there, with the newcomer.
        """
        lowest = min((priority for priority, mine in self._classes.items() if mine.tenants), default=None)
        if lowest is None or lowest > facts.priority:
            return None
        tenants = self._classes[lowest].tenants
        longest = max(tenants.values(), key=len)
        if lowest == facts.priority and len(longest) <= len(tenants.get(facts.tenant, ())) + 1:
            return None
        return next(reversed(longest.values()))
