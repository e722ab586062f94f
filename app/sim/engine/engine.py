"""The scheduler and its state: what the next step runs, how long it takes, and what it brings about.

Calendars instead of per-token loops: every decoding request makes one token per step, so the step in which it needs
its next block and the step in which it ends are known when it starts to decode. `growing[step % block_size]` holds who
needs a block then, `ending[step]` who makes the last token; the sum of contexts is kept as one linear function.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from app.sim.engine.prefix_cache import PrefixCache
from app.sim.engine.profile import Profile
from app.sim.engine.request import EngineRequest, FinishReason, Phase


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Limits of one engine, named as vLLM's options are. `None` takes what the profile can hold.

    `max_num_seqs` defaults to 256: beyond that the measured step times jump (CUDA graphs end there).
    """

    profile: Profile
    block_size: int = 16
    num_blocks: int | None = None
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    max_num_queued_reqs: int | None = None
    max_model_len: int | None = None
    prefix_caching: bool = True

    def __post_init__(self) -> None:
        if min(self.block_size, self.max_num_seqs, self.blocks, self.model_len) < 1:
            raise ValueError("block_size, max_num_seqs, num_blocks and max_model_len must be at least 1")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError("max_num_batched_tokens must be at least max_num_seqs")
        if self.model_len > self.blocks * self.block_size:
            # Otherwise one request could grow past all memory, and would preempt itself for ever.
            raise ValueError(
                f"max_model_len {self.model_len} exceeds the KV cache of {self.blocks * self.block_size} tokens"
            )

    @property
    def blocks(self) -> int:
        return self.profile.kv_tokens // self.block_size if self.num_blocks is None else self.num_blocks

    @property
    def model_len(self) -> int:
        if self.max_model_len is not None:
            return self.max_model_len
        return min(self.profile.max_model_len, self.blocks * self.block_size)


@dataclass(slots=True)
class EngineCounters:
    """Totals since the start, counted when vLLM counts them: cache queries at first scheduling (tokens), prompt tokens
    when the prefill is complete, generation tokens per step."""

    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0
    prompt_tokens: int = 0
    prompt_tokens_cached: int = 0
    generation_tokens: int = 0
    preemptions: int = 0
    rejections: int = 0
    steps: int = 0


@dataclass(slots=True)
class Step:
    """A step under way. `prefill` lists (request, tokens in this step); `decode_batch` requests make one token each."""

    number: int
    duration_s: float
    prefill: list[tuple[EngineRequest, int]]
    decode_batch: int
    preempted: list[EngineRequest]

    @property
    def tokens(self) -> int:
        return self.decode_batch + sum(tokens for _, tokens in self.prefill)


@dataclass(slots=True)
class Outcome:
    """What a step that was completed `at` brought about: prefills that ended (first tokens, pooled results), requests
    that finished, and how many requests got a further token (`decoded`: all that were decoding)."""

    step: Step
    at: float
    prefilled: list[EngineRequest] = field(default_factory=list)
    finished: list[EngineRequest] = field(default_factory=list)
    decoded: int = 0


class Engine:
    """One engine replica. Same calls in, same answers out."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.cache = PrefixCache(settings.blocks, enabled=settings.prefix_caching)
        self.counters = EngineCounters()
        self.waiting: OrderedDict[EngineRequest, None] = OrderedDict()
        self.prefilling: dict[EngineRequest, None] = {}
        self.decoding: dict[EngineRequest, None] = {}  # in the order of admission: the last is the youngest
        self._growing: list[dict[EngineRequest, None]] = [{} for _ in range(settings.block_size)]
        self._ending: dict[int, list[EngineRequest]] = {}
        self._context_base = 0  # sum over decoding of (prefill tokens - number of its first step)
        self._number = 0  # of the step that is under way or comes next
        self._step: Step | None = None
        self._now = 0.0

    @property
    def running(self) -> int:
        return len(self.prefilling) + len(self.decoding)

    @property
    def has_work(self) -> bool:
        return bool(self.decoding or self.prefilling or self.waiting)

    @property
    def kv_usage_ratio(self) -> float:
        return self.cache.used / self.cache.num_blocks

    def generated(self, request: EngineRequest) -> int:
        """Output tokens that `request` has so far."""
        if request.phase is Phase.DECODE:
            return request.generated_before + self._number - request.decode_from
        return request.generated_before

    def add(self, request: EngineRequest, now: float) -> bool:
        """Queue `request`. False when the queue limit refuses it: the limit counts running and waiting together, and a
        request that finds it reached is refused. ValueError when it could never fit the model's length."""
        self._advance(now)
        if request.phase is not Phase.NEW:
            raise ValueError("a request is added once")
        if request.prompt_tokens < 1 or request.prompt_tokens + request.output_tokens > self.settings.model_len:
            raise ValueError("a prompt needs at least one token, and prompt plus output must fit max_model_len")
        limit = self.settings.max_num_queued_reqs
        if limit is not None and self.running + len(self.waiting) >= limit:
            self.counters.rejections += 1
            return False
        request.phase = Phase.WAITING
        request.arrived_at = now
        self.waiting[request] = None
        return True

    def abort(self, request: EngineRequest, now: float) -> bool:
        """End `request` wherever it is and free what it holds; False when it has ended already."""
        self._advance(now)
        if request.phase is Phase.WAITING:
            del self.waiting[request]
        elif request.phase is Phase.PREFILL:
            del self.prefilling[request]
        elif request.phase is Phase.DECODE:
            generated = self.generated(request)
            self._leave_decoding(request)
            request.generated_before = generated
        else:
            return False
        self._end(request, FinishReason.ABORT, now)
        return True

    def schedule(self, now: float) -> Step | None:
        """Decide the next step and put its blocks aside; None when there is nothing to run."""
        self._advance(now)
        if self._step is not None:
            raise RuntimeError("the step before is not complete")
        preempted = self._grow_decoding()
        batch = len(self.decoding)
        context_tokens = self._context_base + batch * self._number
        chunks: list[tuple[EngineRequest, int]] = []
        budget = self.settings.max_num_batched_tokens - batch
        variable_s = 0.0
        for request in self.prefilling:  # at most one: a prompt that did not fit the budget of the step before
            budget, chunk_s = self._prefill(request, budget, chunks)
            variable_s += chunk_s
        # After a preemption memory is short: let what runs finish first, as vLLM does.
        while not preempted and budget > 0 and self.waiting and self.running < self.settings.max_num_seqs:
            request = next(iter(self.waiting))
            if not self._admit(request, now):
                break
            budget, chunk_s = self._prefill(request, budget, chunks)
            variable_s += chunk_s
        if not chunks and not batch:
            return None
        duration_s = self.settings.profile.step_s(variable_s, batch, context_tokens)
        self._step = Step(self._number, duration_s, chunks, batch, preempted)
        return self._step

    def complete(self, now: float) -> Outcome:
        """End the step that is under way: hand out its tokens and free what finished."""
        self._advance(now)
        step = self._step
        if step is None:
            raise RuntimeError("no step is under way")
        self._step = None
        outcome = Outcome(step, now, decoded=len(self.decoding))
        for request in self._ending.pop(step.number, ()):
            # Entries of requests that were aborted or preempted since are stale.
            if request.phase is Phase.DECODE and request.final_step == step.number:
                self._leave_decoding(request)
                self._finish(request, outcome, now)
        for request, _ in step.prefill:
            if request.phase is Phase.PREFILL and request.computed == request.prefill_tokens:
                self._end_prefill(request, step.number, outcome, now)
        self._number += 1
        self.counters.steps += 1
        self.counters.generation_tokens += outcome.decoded + sum(1 for r in outcome.prefilled if r.output_tokens)
        return outcome

    def _advance(self, now: float) -> None:
        if now < self._now:
            raise ValueError("time went backwards")
        self._now = now

    def _grow_decoding(self) -> list[EngineRequest]:
        """Give a block to each request whose next token starts one; preempt the youngest while there is none left."""
        preempted: list[EngineRequest] = []
        bucket = self._growing[self._number % self.settings.block_size]
        for request in list(bucket):
            if request.phase is not Phase.DECODE:
                continue  # preempted by one before it in this loop
            while not self.cache.free:
                victim = next(reversed(self.prefilling or self.decoding))
                self._preempt(victim)
                preempted.append(victim)
                if victim is request:
                    break
            else:
                tokens = request.prefill_tokens + self._number - request.decode_from - 1
                self._seal(request, tokens // self.settings.block_size)
                self.cache.take(1)
                request.private += 1
        return preempted

    def _preempt(self, request: EngineRequest) -> None:
        if request.phase is Phase.DECODE:
            generated = self.generated(request)
            self._leave_decoding(request)
            request.generated_before = generated
        else:
            del self.prefilling[request]
        self._release(request)
        request.phase = Phase.WAITING
        request.preemptions += 1
        self.counters.preemptions += 1
        self.waiting[request] = None
        self.waiting.move_to_end(request, last=False)

    def _admit(self, request: EngineRequest, now: float) -> bool:
        """Move the head of the queue into prefill with the blocks of all its tokens; False when they do not fit.

        The whole prompt must fit, not only its first chunk (vLLM's scheduler_reserve_full_isl); unlike vLLM its
        blocks are also taken at once, which changes the usage gauge during a prefill of several steps and nothing else.
        """
        block_size = self.settings.block_size
        total = request.prefill_tokens
        # The last token is always computed, since its logits are needed: a full hit stops one block short.
        matched, idle = self.cache.match(request.block_hashes, (total - 1) // block_size)
        need = -(-total // block_size) - matched
        if self.cache.free - idle < need:
            return False
        del self.waiting[request]
        request.held = list(request.block_hashes[:matched])
        self.cache.hold(request.held)
        self.cache.take(need)
        request.private, request.sealed, request.computed = need, matched, matched * block_size
        request.phase = Phase.PREFILL
        self.prefilling[request] = None
        if request.scheduled_at is None:
            request.scheduled_at = now
            request.cached_tokens = request.computed
            if self.settings.prefix_caching:
                self.counters.prefix_cache_queries += total
                self.counters.prefix_cache_hits += request.cached_tokens
        return True

    def _prefill(
        self, request: EngineRequest, budget: int, chunks: list[tuple[EngineRequest, int]]
    ) -> tuple[int, float]:
        """Put as much of `request` as `budget` allows into the step; the rest of the budget and the chunk's cost.

        Blocks count as cached from here on: another request of the same step may share them, as in vLLM.
        """
        tokens = min(budget, request.prefill_tokens - request.computed)
        if tokens <= 0:
            return budget, 0.0
        chunk_s = self.settings.profile.prefill_s(tokens, request.computed)
        request.computed += tokens
        self._seal(request, request.computed // self.settings.block_size)
        chunks.append((request, tokens))
        return budget - tokens, chunk_s

    def _end_prefill(self, request: EngineRequest, number: int, outcome: Outcome, now: float) -> None:
        del self.prefilling[request]
        outcome.prefilled.append(request)
        if request.first_token_at is None:
            request.first_token_at = now
            self.counters.prompt_tokens += request.prompt_tokens
            self.counters.prompt_tokens_cached += request.cached_tokens
        left = request.output_tokens - request.generated_before
        if left <= 1:
            self._finish(request, outcome, now)
            return
        request.phase = Phase.DECODE
        request.decode_from = number
        request.final_step = number + left - 1
        self.decoding[request] = None
        self._growing[(number + 1 - request.prefill_tokens) % self.settings.block_size][request] = None
        self._ending.setdefault(request.final_step, []).append(request)
        self._context_base += request.prefill_tokens - number

    def _leave_decoding(self, request: EngineRequest) -> None:
        number = request.decode_from
        del self.decoding[request]
        del self._growing[(number + 1 - request.prefill_tokens) % self.settings.block_size][request]
        self._context_base -= request.prefill_tokens - number

    def _finish(self, request: EngineRequest, outcome: Outcome, now: float) -> None:
        # The last token is handed out, never computed, so it has no KV.
        tokens = request.prompt_tokens + max(0, request.output_tokens - 1)
        self._seal(request, tokens // self.settings.block_size)
        request.generated_before = request.output_tokens
        stops = request.ends_by_stop or not request.output_tokens
        self._end(request, FinishReason.STOP if stops else FinishReason.LENGTH, now)
        outcome.finished.append(request)

    def _end(self, request: EngineRequest, reason: FinishReason, now: float) -> None:
        self._release(request)
        request.phase = Phase.ENDED
        request.finish_reason = reason
        request.finished_at = now

    def _seal(self, request: EngineRequest, full_blocks: int) -> None:
        """Publish the blocks of `request` that are full by now."""
        hashes = request.block_hashes
        for index in range(request.sealed, min(full_blocks, len(hashes))):
            if self.cache.seal(hashes[index]):
                request.held.append(hashes[index])
                request.private -= 1
                if request.phase is Phase.PREFILL and not request.preemptions:
                    request.created_blocks += 1
        request.sealed = max(request.sealed, full_blocks)

    def _release(self, request: EngineRequest) -> None:
        self.cache.release(request.held, request.private)
        request.held = []
        request.private = request.sealed = request.computed = 0
