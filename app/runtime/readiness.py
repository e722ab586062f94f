"""Should this gateway get traffic."""

from app.core.router import Router


class Readiness:
    """Ready from the first healthy worker until shutdown.

    Once ready it stays so even when every worker fails: all replicas see the same workers, so taking them all out would
    turn an answer that says what is wrong into refused connections. The store is not asked at all.
    """

    def __init__(self, router: Router) -> None:
        self._router = router
        self.is_shutting_down = False

    def problem(self) -> str | None:
        """Why not, or None."""
        if self.is_shutting_down:
            return "shutting down"
        return None if self._router.was_healthy else "no worker is healthy yet"
