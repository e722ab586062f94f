"""How long an engine step takes and how much KV fits, per model and machine; numbers come from measurements only.

A profile is data. Prefill follows the fitted quadratic of a single request's time to first token; decode interpolates
measured step times by batch and adds a slope per token of context.
"""

from dataclasses import dataclass, field
from itertools import pairwise

# Decode points were measured at this context, so the slope counts from here.
MEASURED_CONTEXT_TOKENS = 350


@dataclass(frozen=True, slots=True)
class Profile:
    """One calibrated engine: seconds per step from what is in the step, and the KV capacity in tokens.

    `prefill_*` are t0, t1 and t2 of t0 + t1·n + t2·n² (seconds, n prompt tokens of one request alone).
    `decode_points` are (batch, seconds) at a context of 350 tokens per request, ascending, starting with batch 1.
    """

    name: str
    prefill_fixed_s: float
    prefill_token_s: float
    prefill_token2_s: float
    decode_points: tuple[tuple[int, float], ...]
    context_token_s: float
    kv_tokens: int
    max_model_len: int
    _decode_by_batch: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        times = [0.0, self.decode_points[0][1]]
        for (low, low_s), (high, high_s) in pairwise(self.decode_points):
            slope = (high_s - low_s) / (high - low)
            times.extend(low_s + slope * step for step in range(1, high - low + 1))
        object.__setattr__(self, "_decode_by_batch", tuple(times))

    def prefill_s(self, new_tokens: int, computed_tokens: int = 0) -> float:
        """Seconds that `new_tokens` of one prompt add to a step, after `computed_tokens` of it: the fit's difference,
        so that a prompt costs the same however it is cut (each further step adds its own fixed part)."""
        quadratic = self.prefill_token2_s * new_tokens * (2 * computed_tokens + new_tokens)
        return self.prefill_token_s * new_tokens + quadratic

    def decode_s(self, batch: int, context_tokens: int) -> float:
        """Seconds of a step that decodes one token for each of `batch` requests with `context_tokens` in sum."""
        if batch <= 0:
            return 0.0
        times = self._decode_by_batch
        if batch < len(times):
            time_s = times[batch]
        else:
            # Beyond what was measured: the mean slope of the measured range, since the last segment alone is noise.
            slope = (times[-1] - times[1]) / (len(times) - 2)
            time_s = times[-1] + slope * (batch - len(times) + 1)
        return time_s + self.context_token_s * (context_tokens - MEASURED_CONTEXT_TOKENS * batch)

    def step_s(self, prefill_variable_s: float, batch: int, context_tokens: int) -> float:
        """Seconds of one step that holds prefill worth `prefill_variable_s` (0: none) and a decode batch.

        A mixed step reads the weights once, so the prefill's fixed part is paid once and each decoding request costs
        one more token row plus its context; it is never faster than the decode batch alone. This sum is a model: the
        two ingredients were measured apart.
        """
        decode_s = self.decode_s(batch, context_tokens)
        if prefill_variable_s <= 0.0:
            return decode_s
        mixed_s = self.prefill_fixed_s + prefill_variable_s
        mixed_s += self.prefill_token_s * batch + self.context_token_s * context_tokens
        return max(decode_s, mixed_s)


# Llama-3.3-70B-Instruct FP8, vLLM 0.10.1.1, H100 SXM 80 GB. Prefill: fit over single-request time to first token at
# 100-16,380 tokens. Decode: step times at a context of 350 tokens; slope from the batch-1 rows. Both from Dynamo's
# pre-swept profiles (ai-dynamo/dynamo PR #3170, Apache-2.0). KV capacity with bf16 KV at 327,680 bytes per token:
# TP2 from a measured run (InferenceMAX dumps in aiconfigurator-core 0.12.0, Apache-2.0), TP4 and TP8 computed.
PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile(
            name="llama33-70b-fp8-h100-tp2",
            prefill_fixed_s=24.4e-3,
            prefill_token_s=80.3e-6,
            prefill_token2_s=2.31e-9,
            decode_points=((1, 17.6e-3), (47, 21.8e-3), (93, 25.2e-3), (185, 35.5e-3), (231, 37.0e-3)),
            context_token_s=0.057e-6,
            kv_tokens=209_648,
            max_model_len=131_072,
        ),
        Profile(
            name="llama33-70b-fp8-h100-tp4",
            prefill_fixed_s=21.3e-3,
            prefill_token_s=47.0e-6,
            prefill_token2_s=1.25e-9,
            decode_points=((1, 12.1e-3), (47, 16.2e-3), (93, 19.2e-3), (185, 26.5e-3), (231, 27.1e-3)),
            context_token_s=0.037e-6,
            kv_tokens=641_360,
            max_model_len=131_072,
        ),
        Profile(
            name="llama33-70b-fp8-h100-tp8",
            prefill_fixed_s=19.5e-3,
            prefill_token_s=32.0e-6,
            prefill_token2_s=0.565e-9,
            decode_points=((1, 9.5e-3), (47, 12.8e-3), (93, 15.4e-3), (185, 22.0e-3), (231, 22.8e-3)),
            context_token_s=0.026e-6,
            kv_tokens=1_504_752,
            max_model_len=131_072,
        ),
    )
}
