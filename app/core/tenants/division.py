"""All limits, divided among all processes of all gateways. Pure; each gateway does it for itself, on what it knows.

What every gateway last published is the common view. When the store is gone for longer than STALE_S, nothing is known
of the others' demand any more, but how many they were: each process keeps to its even part of the whole, and within a
gateway the parts go by demand as before.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b

from app.core.fleet.tenant import GatewayUsage, Limits
from app.core.tenants.demand import NOTHING
from app.core.tenants.shares import Share, even_share_of, shares_of

STALE_S = 5.0
"""After which the others' last word counts for nothing; they hold us for gone then, too."""

Rows = Sequence[float]


def stored_name(scope: str) -> str:
    """A scope as the store knows it: without the names that an operator gave."""
    return blake2b(scope.encode("utf-8", "surrogatepass"), digest_size=16, person=b"warmset scope").hexdigest()


class Division:
    """One gateway's view.

    processes: how many it has. other_processes: how many others to reckon with until some are heard of.
    """

    def __init__(self, gateway: str, processes: int, other_processes: int) -> None:
        self._gateway = gateway
        self._processes = processes
        self._other_processes = other_processes
        self._others: Sequence[GatewayUsage] = ()
        self._heard_at = float("-inf")

    def usage(self, rows: Sequence[Mapping[str, Rows]]) -> GatewayUsage:
        """What to publish. rows: for each process, scope -> row of demand."""
        scopes = dict.fromkeys(scope for of_process in rows for scope in of_process)
        return GatewayUsage(
            self._gateway,
            self._processes,
            {stored_name(scope): [of_process.get(scope, NOTHING) for of_process in rows] for scope in scopes},
        )

    def heard(self, usages: Sequence[GatewayUsage], now: float) -> None:
        """What is published now, by everybody."""
        self._others = [usage for usage in usages if usage.gateway != self._gateway]
        self._other_processes = sum(usage.processes for usage in self._others)
        self._heard_at = now

    def is_local(self, now: float) -> bool:
        """Whether nothing is known of the others' demand."""
        return now - self._heard_at > STALE_S

    @property
    def parts(self) -> int:
        """Processes of all gateways, as last known."""
        return self._processes + self._other_processes

    @property
    def gateways(self) -> int:
        """Gateways that were last heard of, this one among them."""
        return 1 + len(self._others)

    @property
    def first_place(self) -> int:
        """The place of our first process among those of all gateways, which are in the order of their names."""
        return sum(usage.processes for usage in self._others if usage.gateway < self._gateway)

    def shares(
        self, limits: Mapping[str, Limits], rows: Sequence[Mapping[str, Rows]], now: float
    ) -> dict[str, list[Share]]:
        """Our processes' shares of every scope that anybody asks of; any other is shared evenly."""
        if self.is_local(now):
            return self._local_shares(limits, rows)
        names = sorted([self._gateway, *(usage.gateway for usage in self._others)])
        others = {usage.gateway: usage for usage in self._others}
        first, found = self.first_place, {}
        for scope, limit in limits.items():
            stored = stored_name(scope)
            everybody: list[Rows] = []
            is_asked = False
            for name in names:
                usage = others.get(name)
                theirs = (
                    [of_process.get(scope, NOTHING) for of_process in rows]
                    if usage is None
                    else usage.scopes.get(stored) or [NOTHING] * usage.processes
                )
                is_asked = is_asked or any(row is not NOTHING for row in theirs)
                everybody += theirs
            if is_asked:
                found[scope] = shares_of(limit, everybody)[first : first + self._processes]
        return found

    def _local_shares(self, limits: Mapping[str, Limits], rows: Sequence[Mapping[str, Rows]]) -> dict[str, list[Share]]:
        first, parts = self.first_place, self.parts
        found = {}
        for scope, limit in limits.items():
            ours = [of_process.get(scope, NOTHING) for of_process in rows]
            if any(row is not NOTHING for row in ours):
                places = range(first, first + self._processes)
                found[scope] = shares_of(_together([even_share_of(limit, parts, place) for place in places]), ours)
        return found


def _together(shares: Sequence[Share]) -> Limits:
    """Several shares of one scope as the limits of who has them all."""
    requests, tokens, places, sizes = zip(*shares, strict=True)
    return Limits(
        None if requests[0] is None else sum(requests),
        None if tokens[0] is None else sum(tokens),
        None if places[0] is None else sum(places),
        None if sizes[0] is None else sum(sizes),
    )
