"""A load sample: what an engine said of itself at one moment."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoadSample:
    """Source: the engine's `/metrics`.

    taken_at: monotonic seconds of this process when the scrape was sent (the sample is not newer than that).
    running, waiting: requests in the engine's batch and queue, of everybody, not only ours.
    own_in_flight: requests of this process on the worker at `taken_at`; they are part of running + waiting.
    kv_usage: share of KV blocks in use, 0..1; None when the engine does not say.
    """

    taken_at: float
    running: int
    waiting: int
    own_in_flight: int
    kv_usage: float | None = None
