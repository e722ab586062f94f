"""What one scope (a tenant, or a key with limits of its own) uses in one process, against the process's share."""

from dataclasses import dataclass

from app.core.fleet.tenant import Limits
from app.core.tenants.bucket import Bucket
from app.core.tenants.shares import Share, whole_of

CLEARS_S = 1.0
"""When to come back for a place: about when shares are next divided."""

LONGEST_WAIT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Over:
    """Why a request may not begin: which limit is used up, whose it is, and when it is worth another try.

    is_final: never; it is more than the whole limit.
    """

    what: str
    scope: str
    retry_after_s: float
    is_final: bool = False


class Meter:
    """What one scope uses in this process, and its share.

    asked, tokens, refused_places, refused_bytes: since the last report.
    """

    __slots__ = (
        "_mean_tokens", "asked", "bytes", "bytes_held", "limits", "peak", "places", "refused_bytes", "refused_places",
        "requests", "scope", "tokens", "tokens_wanted", "under_way",
    )  # fmt: skip

    def __init__(self, scope: str, limits: Limits, now: float) -> None:
        self.scope = scope
        self.limits = limits
        self.requests: Bucket | None = None
        self.tokens: Bucket | None = None
        self.places: int | None = None
        self.bytes: int | None = None
        self.under_way = 0
        self.bytes_held = 0
        self.asked = 0
        self.peak = 0
        self.tokens_wanted = 0.0
        self.refused_places = 0
        self.refused_bytes = 0
        self._mean_tokens = 1.0
        self.set_share(whole_of(limits), now)

    def set_share(self, share: Share, now: float) -> None:
        requests, tokens, self.places, self.bytes = share
        self.requests = _with_rate(self.requests, requests, now, least=1.0)
        self.tokens = _with_rate(self.tokens, tokens, now, least=0.0)

    def over(self, now: float) -> Over | None:
        """The first limit that a further request would exceed."""
        requests, tokens, places = self.requests, self.tokens, self.places
        if places is not None and self.under_way >= places:
            self.refused_places += 1
            return Over("concurrency", self.scope, CLEARS_S)
        # A request is one whole unit; tokens are known only afterwards, so any that is left lets one in.
        if requests is not None and requests.level(now) < 1.0:
            return Over("requests", self.scope, min(LONGEST_WAIT_S, requests.wait_s(1.0, now)))
        if tokens is not None and tokens.level(now) <= 0.0:
            self.tokens_wanted += self._mean_tokens
            return Over("tokens", self.scope, min(LONGEST_WAIT_S, tokens.wait_s(1.0, now)))
        return None

    def begin(self, now: float) -> None:
        self.under_way += 1
        if self.under_way > self.peak:
            self.peak = self.under_way
        if self.requests is not None:
            self.requests.take(1.0, now)

    def end(self, tokens: int, size: int, now: float) -> None:
        self.under_way -= 1
        self.bytes_held -= size
        if tokens:
            self.tokens_wanted += tokens
            self._mean_tokens += (tokens - self._mean_tokens) / 16
            if self.tokens is not None:
                self.tokens.take(tokens, now)

    def report(self) -> list[float] | None:
        """The row of `core.tenants.demand`, since the last call; None when there is nothing to say."""
        wanted = self.peak + self.refused_places
        wanted_bytes = self.bytes_held + self.refused_bytes
        row: list[float] = [self.asked, self.tokens_wanted, self.under_way, wanted, self.bytes_held, wanted_bytes]
        self.asked = self.refused_places = self.refused_bytes = 0
        self.peak = self.under_way
        self.tokens_wanted = 0.0
        return row if any(row) else None


def _with_rate(bucket: Bucket | None, per_minute: float | None, now: float, *, least: float) -> Bucket | None:
    if per_minute is None:
        return None
    if bucket is None:
        return Bucket(per_minute / 60, now, least=least)
    bucket.set_rate(per_minute / 60, now)
    return bucket
