"""A vLLM engine as a pure model: which requests run, in which step, for how long, and what its KV cache holds.

Rule 1: no I/O, clock, chance or log; `now` is an argument in seconds and never goes backwards.
Rule 2: the caller alternates `schedule(now) -> Step` and, `Step.duration_s` later, `complete(now) -> Outcome`.
        `add` and `abort` may come at any moment, also between the two.
Rule 3: the cost of a step in Python does not grow with the tokens in it: decoding requests sit in calendars by the
        step in which they need a block or end, and are touched in that step only.

Modelled after vLLM's V1 scheduler: running requests first, then the waiting queue in order while the token budget,
the batch and the KV blocks allow; chunked prefill; preemption of the youngest by recompute; prefix cache of full
blocks with least-recently-used eviction. Not modelled: speculative decoding, LoRA, KV offload, priorities.
"""

from app.sim.engine.engine import Engine, EngineSettings, Outcome, Step
from app.sim.engine.hashing import chain_hashes
from app.sim.engine.prefix_cache import PrefixCache
from app.sim.engine.profile import PROFILES, Profile
from app.sim.engine.request import EngineRequest, FinishReason

__all__ = [
    "PROFILES",
    "Engine",
    "EngineRequest",
    "EngineSettings",
    "FinishReason",
    "Outcome",
    "PrefixCache",
    "Profile",
    "Step",
    "chain_hashes",
]
