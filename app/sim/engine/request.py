"""One request as the engine sees it: sizes, prefix hashes, and what became of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from app.sim.engine.hashing import BlockHash


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


class Phase(StrEnum):
    NEW = "new"
    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    ENDED = "ended"


@dataclass(slots=True, eq=False)
class EngineRequest:
    """What to compute, given by the caller; compared by identity.

    `block_hashes` are the chained hashes of the full blocks of the prompt, in order; they may go on with the full
    blocks of prompt + output, which are then cached as they fill. `output_tokens` is how many will be generated: 0 for
    pooling, which ends with its prefill. `ends_by_stop` only chooses between the reasons "stop" and "length".
    """

    prompt_tokens: int
    output_tokens: int
    block_hashes: Sequence[BlockHash] = ()
    ends_by_stop: bool = False
    tag: object = None  # the caller's own mark; the engine never looks at it

    # Written by the engine, read by anyone. Times are the `now` of the call that caused them; None: has not happened.
    phase: Phase = Phase.NEW
    finish_reason: FinishReason | None = None
    cached_tokens: int = 0  # prompt tokens found in the cache when first scheduled
    created_blocks: int = 0  # full prompt blocks that it put into the cache
    preemptions: int = 0
    arrived_at: float | None = None
    scheduled_at: float | None = None
    first_token_at: float | None = None
    finished_at: float | None = None

    # The engine's own bookkeeping.
    generated_before: int = 0  # output tokens made before this run: recomputed as prefill; at the end, all of them
    computed: int = 0  # tokens with KV, while in prefill
    decode_from: int = 0  # number of the step that made this run's first token
    final_step: int = 0  # number of the step that makes the last token
    held: list[BlockHash] = field(default_factory=list)  # cached blocks with a reference from this request, in order
    private: int = 0  # its blocks without a hash of their own
    sealed: int = 0  # leading blocks of the sequence that were offered to the cache

    @property
    def prefill_tokens(self) -> int:
        """Tokens that this run must have computed before it can generate: prompt, plus output from before."""
        return self.prompt_tokens + self.generated_before
