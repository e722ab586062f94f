"""Scheduling as dialogues: who runs in which step, what is cached, who is preempted, what an abort frees."""

from dataclasses import replace

import pytest

from app.sim.engine import PROFILES, Engine, EngineRequest, EngineSettings, FinishReason, Outcome

PROFILE = PROFILES["llama33-70b-fp8-h100-tp8"]
SMALL = EngineSettings(
    PROFILE, block_size=4, num_blocks=16, max_num_seqs=4, max_num_batched_tokens=16, max_model_len=64
)


def stepped(engine: Engine, now: float = 0.0) -> Outcome:
    step = engine.schedule(now)
    assert step is not None
    return engine.complete(now)


def run_dry(engine: Engine, limit: int = 1000) -> list[EngineRequest]:
    """Step until nothing is left; who finished, in order."""
    finished = []
    for _ in range(limit):
        if not engine.has_work:
            return finished
        finished += stepped(engine).finished
    raise AssertionError("still at work")


def test_a_lone_request_gets_one_token_per_step() -> None:
    engine = Engine(SMALL)
    request = EngineRequest(5, 3)
    assert engine.add(request, 1.0)
    seen = []
    while engine.has_work:
        now = 2.0 + len(seen)
        assert engine.schedule(now) is not None
        outcome = engine.complete(now + 0.5)
        seen.append((engine.generated(request), len(outcome.prefilled), outcome.decoded))
    assert seen == [(1, 1, 0), (2, 0, 1), (3, 0, 1)]
    assert request.finish_reason is FinishReason.LENGTH
    assert (request.arrived_at, request.scheduled_at) == (1.0, 2.0)
    assert (request.first_token_at, request.finished_at) == (2.5, 4.5)
    assert engine.schedule(9.0) is None


def test_a_request_runs_until_its_last_step_is_complete() -> None:
    engine = Engine(SMALL)
    engine.add(EngineRequest(5, 1), 0.0)
    engine.schedule(0.0)
    assert (engine.running, engine.cache.used) == (1, 2)
    engine.complete(0.1)
    assert (engine.running, engine.cache.used) == (0, 0)


def test_pooling_ends_with_its_prefill() -> None:
    engine = Engine(SMALL)
    request = EngineRequest(20, 0)
    engine.add(request, 0.0)
    assert stepped(engine).finished == []
    assert stepped(engine).finished == [request]
    assert (request.finish_reason, engine.generated(request)) == (FinishReason.STOP, 0)
    assert engine.counters.generation_tokens == 0


def test_decoding_comes_first_and_a_long_prompt_is_cut_to_what_is_left_of_the_budget() -> None:
    engine = Engine(SMALL)
    engine.add(EngineRequest(4, 9), 0.0)
    stepped(engine)
    engine.add(EngineRequest(20, 1), 0.0)
    step = engine.schedule(0.0)
    assert step is not None
    assert (step.decode_batch, [tokens for _, tokens in step.prefill], step.tokens) == (1, [15], 16)
    engine.complete(0.0)
    step = engine.schedule(0.0)
    assert step is not None
    assert [tokens for _, tokens in step.prefill] == [5]


def test_the_batch_is_never_larger_than_allowed() -> None:
    engine = Engine(SMALL)
    for _ in range(6):
        engine.add(EngineRequest(1, 5), 0.0)
    stepped(engine)
    assert (engine.running, len(engine.waiting)) == (4, 2)


def test_the_queue_limit_counts_running_and_waiting() -> None:
    engine = Engine(replace(SMALL, max_num_queued_reqs=2))
    assert engine.add(EngineRequest(4, 9), 0.0)
    stepped(engine)
    assert engine.add(EngineRequest(4, 9), 0.0)
    assert not engine.add(EngineRequest(4, 9), 0.0)
    assert engine.counters.rejections == 1


def test_the_same_prompt_again_is_cached_but_for_its_last_block() -> None:
    engine = Engine(SMALL)
    first, second = (EngineRequest(8, 2, ["a", "b"]) for _ in range(2))
    engine.add(first, 0.0)
    run_dry(engine)
    engine.add(second, 0.0)
    step = engine.schedule(0.0)
    assert step is not None
    assert (first.cached_tokens, second.cached_tokens, step.prefill[0][1]) == (0, 4, 4)
    assert (engine.counters.prefix_cache_queries, engine.counters.prefix_cache_hits) == (16, 4)
    assert (first.created_blocks, second.created_blocks) == (2, 0)


def test_requests_of_one_step_share_the_prefix_that_the_first_of_them_computes() -> None:
    engine = Engine(SMALL)
    for tail in ("x", "y"):
        engine.add(EngineRequest(8, 2, ["a", tail]), 0.0)
    step = engine.schedule(0.0)
    assert step is not None
    assert [tokens for _, tokens in step.prefill] == [8, 4]
    assert engine.cache.references("a") == 2


def test_a_cached_prefix_makes_the_step_shorter() -> None:
    durations = []
    engine = Engine(EngineSettings(PROFILE))
    for _ in range(2):
        engine.add(EngineRequest(4096, 1, range(256)), 0.0)
        step = engine.schedule(0.0)
        assert step is not None
        durations.append(step.duration_s)
        engine.complete(0.0)
    assert durations[1] < 0.2 * durations[0]


def test_output_blocks_are_cached_where_their_hashes_are_known() -> None:
    engine = Engine(SMALL)
    engine.add(EngineRequest(4, 10, ["a", "b", "c"]), 0.0)
    run_dry(engine)
    turn = EngineRequest(14, 1, ["a", "b", "c"])
    engine.add(turn, 0.0)
    run_dry(engine)
    assert turn.cached_tokens == 12


def test_the_youngest_is_preempted_when_blocks_run_out_and_finishes_later() -> None:
    engine = Engine(replace(SMALL, num_blocks=4, max_model_len=16))
    old, young = EngineRequest(7, 9, ["a"]), EngineRequest(7, 9, ["b"])
    engine.add(old, 0.0)
    engine.add(young, 0.0)
    assert run_dry(engine) == [old, young]
    assert (old.preemptions, young.preemptions, engine.counters.preemptions) == (0, 1, 1)
    assert engine.generated(young) == 9
    assert engine.counters.generation_tokens == 18
    assert engine.counters.prompt_tokens == 14
    assert engine.counters.prefix_cache_queries == 14  # a resumed request is not counted again
    assert engine.cache.used == 0


def test_a_prompt_that_does_not_fit_waits_and_those_behind_it_too() -> None:
    engine = Engine(replace(SMALL, num_blocks=8, max_model_len=32))
    engine.add(EngineRequest(15, 2), 0.0)
    stepped(engine)
    engine.add(EngineRequest(17, 1), 0.0)
    engine.add(EngineRequest(1, 1), 0.0)
    stepped(engine)
    assert len(engine.waiting) == 2
    assert len(run_dry(engine)) == 2


@pytest.mark.parametrize("moment", ["waiting", "prefill", "decode", "during a step"])
def test_an_abort_frees_everything(moment: str) -> None:
    engine = Engine(SMALL)
    request = EngineRequest(20, 9, ["a", "b", "c", "d", "e"])
    engine.add(request, 0.0)
    if moment != "waiting":
        stepped(engine)
    if moment in ("decode", "during a step"):
        stepped(engine)
        stepped(engine)
    generated = engine.generated(request)
    if moment == "during a step":
        engine.schedule(0.0)
    assert engine.abort(request, 0.0)
    if moment == "during a step":
        assert engine.complete(0.0).decoded == 0
    assert not engine.has_work
    assert (engine.cache.used, engine.generated(request)) == (0, generated)
    assert request.finish_reason is FinishReason.ABORT
    assert not engine.abort(request, 0.0)
    assert engine.schedule(0.0) is None


def test_what_can_never_fit_is_refused_at_once() -> None:
    engine = Engine(SMALL)
    for prompt, output in ((0, 1), (60, 5)):
        with pytest.raises(ValueError, match="max_model_len"):
            engine.add(EngineRequest(prompt, output), 0.0)
    with pytest.raises(ValueError, match="KV cache"):
        replace(SMALL, max_model_len=65)
    with pytest.raises(ValueError, match="max_num_batched_tokens"):
        replace(SMALL, max_num_batched_tokens=3)


def test_time_and_steps_go_forwards_only() -> None:
    engine = Engine(SMALL)
    request = EngineRequest(4, 4)
    engine.add(request, 5.0)
    with pytest.raises(ValueError, match="backwards"):
        engine.schedule(4.0)
    with pytest.raises(RuntimeError, match="no step"):
        engine.complete(5.0)
    engine.schedule(5.0)
    with pytest.raises(RuntimeError, match="not complete"):
        engine.schedule(5.0)
    with pytest.raises(ValueError, match="once"):
        engine.add(request, 5.0)


def test_steps_pay_for_the_context_of_who_is_decoding_now() -> None:
    engine = Engine(EngineSettings(PROFILE))
    contexts = {EngineRequest(5000, 3): 5000, EngineRequest(70, 5): 70, EngineRequest(900, 9): 900}
    for request in contexts:
        engine.add(request, 0.0)
    stepped(engine)
    while engine.has_work:
        context = sum(contexts[request] + engine.generated(request) for request in engine.decoding)
        batch = len(engine.decoding)
        step = engine.schedule(0.0)
        assert step is not None
        assert step.duration_s == pytest.approx(PROFILE.decode_s(batch, context), abs=1e-12)
        engine.complete(0.0)


def test_a_step_that_preempts_admits_nobody() -> None:
    engine = Engine(replace(SMALL, num_blocks=4, max_model_len=16))
    for letter in "abc":
        engine.add(EngineRequest(7, 9, [letter]), 0.0)
    engine.add(EngineRequest(1, 1), 0.0)
    while not engine.counters.preemptions:
        step = engine.schedule(0.0)
        assert step is not None
        admitted = len(step.prefill)
        engine.complete(0.0)
    assert admitted == 0
