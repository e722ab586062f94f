"""A load sample: what an engine said of itself at one moment."""

from dataclasses import dataclass

SAMPLE_FRESH_S = 5.0
"""A sample older than this says nothing: what it says is unknown then, which is neither idle nor busy."""


@dataclass(frozen=True, slots=True)
class LoadSample:
    """Source: the engine's `/metrics`.

    seq: number of the sample among those of one incarnation, from 1 on; marks are ordered by it. It begins anew with an
    incarnation: who has just learnt of that has seen none, and a higher first one would look certainly new to it.
    taken_at: monotonic seconds of this process when the scrape was sent (the sample is not newer than that).
    running, waiting: requests in the engine's batch and queue, of everybody, not only ours.
    own_in_flight: requests of this process on the worker at `taken_at`; they are part of running + waiting.
    kv_usage: share of KV blocks in use, 0..1; None when the engine does not say.
    stalled_s: for how long it has had work and made no step. is_asleep: it was put to sleep: what is sent there hangs.
    """

    taken_at: float
    running: int
    waiting: int
    own_in_flight: int
    kv_usage: float | None = None
    seq: int = 0
    stalled_s: float = 0.0
    is_asleep: bool = False
