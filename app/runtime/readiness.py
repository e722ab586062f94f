"""Should this gateway get traffic."""

from app.core.router import Router


class Readiness:
    """Ready from the first healthy worker until shutdown.

    Once ready it stays so even when every worker fails: all replicas see the same workers, so taking them all out would
    turn an answer that says what is wrong into refused connections. The store is not asked at all.
    """

    def __init__(self, router: Router) -> None:
        self._router = router
        self._was_ready = False
        self.is_shutting_down = False

    def problem(self) -> str | None:
        """Why not, or None."""
        if self.is_shutting_down:
            return "shutting down"
        if not self._was_ready:
            self._was_ready = any(pool.eligible and not pool.panic for pool in self._router.pools.values())
        return None if self._was_ready else "no worker is healthy yet"
