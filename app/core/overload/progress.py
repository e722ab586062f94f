"""Whether an engine that has work gets on with it. Health does not tell: a wedged one answers `/health` with 200."""


class Progress:
    """Of one incarnation, by what it has counted since its start."""

    __slots__ = ("_counted", "_since")

    def __init__(self) -> None:
        self._counted: float | None = None
        self._since = 0.0

    def sample(self, counted: float | None, at: float, *, is_busy: bool) -> float:
        """For how many seconds it has had work and counted nothing more.

        counted: whatever grows with each step of the engine; None when it does not say, which is held against nobody.
        is_busy: something runs or waits there. at: when it was asked, seconds, rising.
        """
        if counted is None or counted != self._counted or not is_busy:
            self._counted, self._since = counted, at
        return at - self._since
