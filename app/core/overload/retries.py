"""How many requests may be sent a second time: one budget, of one owner.

A deposit per request and a withdrawal per retry, so that retries stay a share of requests whatever fails, with a floor
so that a gateway with little traffic can retry at all (Finagle's retry budget). Sharing the floor and the share in one
bucket keeps an outage from doubling the load that caused it.
"""

SHARE = 0.2
FLOOR_PER_S = 10.0
WINDOW_S = 10.0
MOST = FLOOR_PER_S * WINDOW_S

MAX_RETRIES = 2
"""Of one request."""


class RetryBudget:
    """Of one router."""

    __slots__ = ("_balance", "_now")

    def __init__(self) -> None:
        self._balance = FLOOR_PER_S
        self._now = float("-inf")

    def deposit(self) -> None:
        """A request arrived."""
        if self._balance < MOST:
            self._balance += SHARE

    def withdraw(self, now: float) -> bool:
        """Whether one retry may be made now."""
        self._refill(now)
        if self._balance < 1:
            return False
        self._balance -= 1
        return True

    def _refill(self, now: float) -> None:
        """The floor. It is added when somebody asks: who only deposits, which each request does, has no use for it."""
        if now > self._now:
            if self._balance < FLOOR_PER_S:
                self._balance = min(FLOOR_PER_S, self._balance + (now - self._now) * FLOOR_PER_S)
            self._now = now
