"""Chance, as the core sees it."""

from typing import Protocol


class Rng(Protocol):
    """What `random.Random` offers and the core needs; one stream per use, so that draws of one never shift another."""

    def random(self) -> float:
        """A float in [0, 1)."""
        ...

    def randrange(self, stop: int, /) -> int:
        """An integer in [0, stop)."""
        ...
