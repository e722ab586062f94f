"""Whatever arrives, is aborted and competes for few blocks: nothing is lost, used twice, or decided by chance."""

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from app.sim.engine import PROFILES, Engine, EngineRequest, EngineSettings

BLOCK = 4
ADD = st.tuples(
    st.just("add"),
    st.integers(1, 20),  # prompt tokens
    st.integers(0, 12),  # output tokens
    st.integers(0, 3),  # which family of prefixes
    st.integers(0, 5),  # blocks that it shares with its family
)
OPERATIONS = st.lists(
    st.one_of(ADD, ADD, st.tuples(st.just("abort"), st.integers(0, 30)), st.just(("step",)), st.just(("half",))),
    max_size=60,
)
LIMITS = st.builds(
    EngineSettings,
    st.just(PROFILES["llama33-70b-fp8-h100-tp2"]),
    block_size=st.just(BLOCK),
    num_blocks=st.integers(8, 24),
    max_num_seqs=st.integers(1, 6),
    max_num_batched_tokens=st.integers(6, 24),
    max_num_queued_reqs=st.one_of(st.none(), st.integers(1, 8)),
    max_model_len=st.just(32),
)


def hashes(prompt: int, output: int, family: int, shared: int, number: int) -> list[tuple[int, ...]]:
    """Chained by construction: the own part of a chain names the request."""
    blocks = (prompt + output) // BLOCK
    return [(family, index) if index < shared else (family, index, number) for index in range(blocks)]


def check(engine: Engine, requests: list[EngineRequest]) -> None:
    cache = engine.cache
    holders = Counter(block for request in requests for block in request.held)
    private = sum(request.private for request in requests)
    idle = cache.cached - len(holders)
    assert cache.blank >= 0
    assert cache.private == private
    assert cache.blank + idle + len(holders) + private == cache.num_blocks
    assert all(cache.references(block) == count for block, count in holders.items())
    assert cache.used == len(holders) + private
    for request in requests:
        assert 0 <= request.cached_tokens < request.prompt_tokens
        assert request.cached_tokens % BLOCK == 0
        assert engine.generated(request) <= request.output_tokens
        if request in engine.decoding:
            # One block per started four tokens; the newest token has no KV before the next step.
            tokens = request.prompt_tokens + engine.generated(request) - 1
            assert len(request.held) + request.private in (-(-tokens // BLOCK), -(-(tokens + 1) // BLOCK))
        if request.finish_reason is not None:
            assert not request.held
            assert not request.private
    assert engine.running <= engine.settings.max_num_seqs


def play(limits: EngineSettings, operations: list[Any]) -> list[Any]:
    """Run the operations, then to the end; what happened, as plain values."""
    engine = Engine(limits)
    requests: list[EngineRequest] = []
    story: list[Any] = []
    now, under_way = 0.0, False

    def step() -> None:
        nonlocal now, under_way
        if not under_way and (started := engine.schedule(now)) is not None:
            assert started.tokens <= limits.max_num_batched_tokens
            assert started.duration_s > 0
            now += started.duration_s
            under_way = True
        elif under_way:
            outcome = engine.complete(now)
            under_way = False
            story.append((round(now, 9), outcome.decoded, [requests.index(r) for r in outcome.finished]))

    for operation in operations:
        if operation[0] == "add":
            _, prompt, output, family, shared = operation
            request = EngineRequest(prompt, output, hashes(prompt, output, family, shared, len(requests)))
            if engine.add(request, now):
                requests.append(request)
        elif operation[0] == "abort" and requests:
            story.append(engine.abort(requests[operation[1] % len(requests)], now))
        elif operation[0] == "half":
            step()
        else:
            step()
            step()
        check(engine, requests)
    for _ in range(5000):
        if not engine.has_work and not under_way:
            break
        step()
        check(engine, requests)
    assert all(request.finish_reason is not None for request in requests), "somebody waits for ever"
    assert engine.cache.used == 0
    counted = engine.counters
    assert counted.prefix_cache_hits <= counted.prefix_cache_queries
    assert counted.generation_tokens == sum(engine.generated(request) for request in requests)
    return [*story, counted]


@settings(max_examples=150, deadline=None)
@given(LIMITS, OPERATIONS)
def test_blocks_are_conserved_and_everybody_ends(limits: EngineSettings, operations: list[Any]) -> None:
    play(limits, operations)


@settings(max_examples=30, deadline=None)
@given(LIMITS, OPERATIONS)
def test_the_same_story_twice(limits: EngineSettings, operations: list[Any]) -> None:
    assert play(limits, operations) == play(limits, operations)
