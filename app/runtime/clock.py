"""The only place that reads a clock."""

import time


def monotonic() -> float:
    """Seconds that never run backwards; the `now` of every decision. Not comparable between machines."""
    return time.monotonic()


def wall() -> float:
    """Seconds since the epoch, for humans and for JSON bodies; compared with dates of an operator only."""
    return time.time()
