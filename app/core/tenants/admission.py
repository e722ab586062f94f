"""May this request begin now: the limits of its tenant and of its key, against this process's shares of them.

Invariants
    1. A request is measured against every limit before it is counted in any.
    2. What a request holds (a place, bytes) is given back exactly once, by its ticket's `close`, however often called.
    3. Nothing here waits, and nothing asks anybody.
"""

from collections.abc import Mapping, Sequence

from app.core.fleet.tenant import UNLIMITED, Grant, KeySet, Limits
from app.core.tenants.meter import CLEARS_S, Meter, Over
from app.core.tenants.shares import Share, even_share_of, limited_scopes, scope_of_key, scope_of_tenant


class Ticket:
    """A request that was let in. `close` it once it is over."""

    __slots__ = ("_bytes", "_is_open", "meters")

    def __init__(self, meters: Sequence[Meter], now: float) -> None:
        self.meters = meters
        self._bytes = 0
        self._is_open = True
        for meter in meters:
            meter.begin(now)

    def hold(self, size: int) -> Over | None:
        """Count so many more bytes of the body, until `close`. What exceeds a limit is not counted.

        A request that is the only one to hold bytes here may hold as many as the whole limit: a body cannot be divided
        as a limit is, and one that no process's share had room for would be refused for ever.
        """
        for meter in self.meters:
            if meter.bytes is None:
                continue
            whole = meter.limits.in_flight_bytes or 0
            if self._bytes + size > whole:
                return Over("in-flight bytes", meter.scope, CLEARS_S, is_final=True)
            is_alone = meter.bytes_held == self._bytes
            if meter.bytes_held + size > (whole if is_alone else meter.bytes):
                meter.refused_bytes += size
                return Over("in-flight bytes", meter.scope, CLEARS_S)
        for meter in self.meters:
            meter.bytes_held += size
        self._bytes += size
        return None

    def close(self, tokens: int, now: float) -> None:
        """Give everything back, and charge what it cost. Further calls do nothing."""
        if self._is_open:
            self._is_open = False
            for meter in self.meters:
                meter.end(tokens, self._bytes, now)


class Admission:
    """The meters of one process: of every tenant that was seen, and of every key with limits that was."""

    def __init__(self) -> None:
        self._limits: Mapping[str, Limits] = {}
        self._shares: Mapping[str, Share] = {}
        self._parts = 1
        self._place = 0
        self._meters: dict[str, Meter] = {}
        self._of_grant: dict[tuple[str, str], tuple[Meter, ...]] = {}

    def replace(self, keys: KeySet, now: float) -> None:
        """Other limits. A scope that stays keeps what it has used; requests under way give back where they took."""
        self._limits = limited_scopes(keys)
        tenants = {scope_of_tenant(grant.tenant) for grant in keys.grants}
        for scope, meter in list(self._meters.items()):
            if scope in self._limits or scope in tenants or meter.under_way:
                limits = self._limits.get(scope, UNLIMITED)
                if meter.limits != limits:
                    meter.limits = limits
                    meter.set_share(even_share_of(limits, self._parts, self._place), now)
            else:
                del self._meters[scope]
        self._of_grant.clear()

    def set_shares(self, shares: Mapping[str, Share], parts: int, place: int, now: float) -> None:
        """This process's shares: those that are named, and of every other limit that of the place-th of `parts`."""
        self._shares = shares
        self._parts = parts
        self._place = place
        for scope, meter in self._meters.items():
            if meter.limits != UNLIMITED:
                meter.set_share(self._share(scope, meter.limits), now)

    def admit(self, grant: Grant, now: float) -> Ticket | Over:
        """Let a request in, or say which limit is in its way."""
        meters = self.meters(grant, now)
        refusal: Over | None = None
        for meter in meters:
            meter.asked += 1
            if refusal is None:
                refusal = meter.over(now)
        return refusal or Ticket(meters, now)

    def meters(self, grant: Grant, now: float) -> tuple[Meter, ...]:
        """Those of the grant: its own if it has limits of its own, and its tenant's."""
        found = self._of_grant.get((grant.tenant, grant.name))
        if found is None:
            scopes = [scope_of_key(grant.name)] if grant.limits != UNLIMITED else []
            scopes.append(scope_of_tenant(grant.tenant))
            found = tuple(self._meters.get(scope) or self._new(scope, now) for scope in scopes)
            self._of_grant[grant.tenant, grant.name] = found
        return found

    def report(self) -> dict[str, list[float]]:
        """What was asked for since the last report, by scope; silent scopes are left out."""
        rows = {scope: meter.report() for scope, meter in self._meters.items()}
        return {scope: row for scope, row in rows.items() if row is not None}

    def _share(self, scope: str, limits: Limits) -> Share:
        return self._shares.get(scope) or even_share_of(limits, self._parts, self._place)

    def _new(self, scope: str, now: float) -> Meter:
        limits = self._limits.get(scope, UNLIMITED)
        meter = self._meters[scope] = Meter(scope, limits, now)
        meter.set_share(self._share(scope, limits), now)
        return meter
