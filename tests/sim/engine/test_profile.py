"""Profiles reproduce the measurements that they were fitted to."""

import pytest

from app.sim.engine import PROFILES, Engine, EngineRequest, EngineSettings

# Measured single-request time to first token (s) by prompt tokens, and step time (s) by batch at a context of 350.
PREFILL = {
    "tp2": {2135: 0.208, 8240: 0.832, 16380: 1.957},
    "tp4": {2135: 0.132, 8240: 0.499, 16380: 1.133},
    "tp8": {2135: 0.095, 8240: 0.321, 16380: 0.704},
}
DECODE = {
    "tp2": {1: 0.0176, 47: 0.0218, 93: 0.0252, 185: 0.0355, 231: 0.0370},
    "tp4": {1: 0.0121, 47: 0.0162, 93: 0.0192, 185: 0.0265, 231: 0.0271},
    "tp8": {1: 0.0095, 47: 0.0128, 93: 0.0154, 185: 0.0220, 231: 0.0228},
}


@pytest.mark.parametrize(("tp", "tokens"), [(tp, tokens) for tp in PREFILL for tokens in PREFILL[tp]])
def test_first_token_comes_when_it_was_measured(tp: str, tokens: int) -> None:
    settings = EngineSettings(PROFILES[f"llama33-70b-fp8-h100-{tp}"], max_num_batched_tokens=16384)
    engine = Engine(settings)
    engine.add(EngineRequest(tokens, 1), 0.0)
    step = engine.schedule(0.0)
    assert step is not None
    assert step.duration_s == pytest.approx(PREFILL[tp][tokens], rel=0.07)


@pytest.mark.parametrize(("tp", "batch"), [(tp, batch) for tp in DECODE for batch in DECODE[tp]])
def test_decode_steps_take_what_was_measured(tp: str, batch: int) -> None:
    profile = PROFILES[f"llama33-70b-fp8-h100-{tp}"]
    assert profile.decode_s(batch, 350 * batch) == pytest.approx(DECODE[tp][batch])


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_more_work_never_takes_less_time(profile: object) -> None:
    assert isinstance(profile, type(next(iter(PROFILES.values()))))
    times = [profile.decode_s(batch, 350 * batch) for batch in range(1, 600)]
    assert times == sorted(times)
    assert profile.decode_s(8, 80_000) > profile.decode_s(8, 8_000)
    assert profile.step_s(profile.prefill_s(100), 8, 8_000) > profile.step_s(0.0, 8, 8_000)


def test_a_prompt_costs_the_same_however_it_is_cut() -> None:
    profile = PROFILES["llama33-70b-fp8-h100-tp2"]
    cut = profile.prefill_s(1000) + profile.prefill_s(3000, 1000) + profile.prefill_s(96, 4000)
    assert cut == pytest.approx(profile.prefill_s(4096))
    assert profile.prefill_s(1000, 8000) > profile.prefill_s(1000)
