"""What the worker counts and how /metrics shows it: vLLM 0.32's families, in its order, with its help texts.

Gauges and engine totals are read from the engine when asked; histograms are fed per step and per finished request.
All durations are wall-clock seconds. Families of parts that are not simulated (FLOPs, multi-modal and external caches)
stay at zero, as they do on a vLLM that does not use them. Per-handler HTTP metrics and `lora_requests_info` are left
out.
"""

from app.sim.engine import Engine, EngineRequest, FinishReason, Outcome
from app.sim.worker.exposition import Counter, Family, Gauge, Histogram, Labels

TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
ITERATION_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
FIRST_TOKEN_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
TOKEN_GAP_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0),
)
REQUEST_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
FINISHED_REASONS = ("stop", "length", "abort", "error", "repetition")


class Observations:
    """All metric families of one worker; `model_name` is the first served name, as vLLM labels them."""

    def __init__(self, engine: Engine, model_name: str) -> None:
        self._engine = engine
        self._base: Labels = (("engine", "0"), ("model_name", model_name))
        self._model: Labels = (("model_name", model_name),)
        self._families: list[Family] = []
        self._decoded_at: float | None = None
        self._declare_state()
        self._declare_totals()
        self._declare_histograms()
        self._gauge("cache_config_info", "Information of the LLMEngine CacheConfig", self._cache_config()).set(
            1.0, self._cache_config()
        )

    def step(self, outcome: Outcome) -> None:
        """Take in a completed step."""
        self._iteration.observe(outcome.step.tokens)
        if outcome.decoded and self._decoded_at is not None:
            # Every decoding request got its token before this one in the step before.
            self._token_gap.observe(outcome.at - self._decoded_at, outcome.decoded)
        self._decoded_at = outcome.at
        for request in outcome.prefilled:
            if request.first_token_at == outcome.at:  # not a recomputed prefill
                self._first_token.observe(_between(request.arrived_at, request.first_token_at))
        for request in outcome.finished:
            self.finished(request)

    def finished(self, request: EngineRequest) -> None:
        """Take in one request that has ended by itself or by the worker's shutdown (vLLM does not count requests
        whose client went away)."""
        reason = request.finish_reason or FinishReason.ABORT
        self._success.values[(*self._base, ("finished_reason", reason.value))] += 1
        generated = self._engine.generated(request)
        decode_s = _between(request.first_token_at, request.finished_at)
        self._prompt_tokens.observe(request.prompt_tokens)
        self._generation_tokens.observe(generated)
        self._params_max_tokens.observe(request.output_tokens)
        self._whole.observe(_between(request.arrived_at, request.finished_at))
        self._queue.observe(_between(request.arrived_at, request.scheduled_at))
        self._inference.observe(_between(request.scheduled_at, request.finished_at))
        self._prefill.observe(_between(request.scheduled_at, request.first_token_at))
        self._decode.observe(decode_s)
        self._per_token.observe(decode_s / (generated - 1) if generated > 1 else 0.0)
        self._preemptions_each.observe(request.preemptions)
        self._computed.observe(request.prompt_tokens - request.cached_tokens)

    def asked(self, requests: int, longest_tokens: int) -> None:
        """Take in one client request: how many answers it wants (`n`) and the longest of them."""
        self._params_n.observe(requests)
        self._longest.observe(longest_tokens)

    def render(self) -> str:
        self._read_engine()
        return "\n".join(line for family in self._families for line in family.lines()) + "\n"

    def _read_engine(self) -> None:
        engine, counters, base = self._engine, self._engine.counters, self._base
        waiting = len(engine.waiting)
        self._running.set(engine.running, base)
        self._waiting.set(waiting, base)
        self._waiting_reason.set(waiting, (*base, ("reason", "capacity")))
        self._kv_usage.set(engine.kv_usage_ratio, base)
        computed = counters.prompt_tokens - counters.prompt_tokens_cached
        for family, value in (
            (self._queries, counters.prefix_cache_queries),
            (self._hits, counters.prefix_cache_hits),
            (self._preemptions, counters.preemptions),
            (self._prompt_total, counters.prompt_tokens),
            (self._cached_total, counters.prompt_tokens_cached),
            (self._generation_total, counters.generation_tokens),
        ):
            family.set(value, base)
        self._by_source.set(computed, (*base, ("source", "local_compute")))
        self._by_source.set(counters.prompt_tokens_cached, (*base, ("source", "local_cache_hit")))
        self._cached_by_source.set(counters.prefix_cache_hits, (*base, ("source", "device")))
        self._rejections.set(counters.rejections, (*self._model, ("reason", "max_num_queued_reqs")))

    def _declare_state(self) -> None:
        for what, text in (("flops", "floating point operations"), ("read_bytes", ""), ("write_bytes", "")):
            text = text or f"bytes {'read from' if what == 'read_bytes' else 'written to'} memory"
            note = "(for Model Flops Utilization calculations)"
            self._counter(f"estimated_{what}_per_gpu", f"Estimated number of {text} per GPU {note}.")
        self._running = self._gauge("num_requests_running", "Number of requests in model execution batches.")
        self._waiting = self._gauge("num_requests_waiting", "Number of requests waiting to be processed.")
        self._waiting_reason = self._gauge(
            "num_requests_waiting_by_reason",
            "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; "
            "'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). "
            "Sum of all reasons equals vllm:num_requests_waiting.",
            *self._each("reason", "capacity", "deferred"),
        )
        states = self._each("sleep_state", "awake", "weights_offloaded", "discard_all")
        self._gauge(
            "engine_sleep_state",
            "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; "
            "weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.",
            *states,
        ).set(1.0, states[0])
        self._kv_usage = self._gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.")

    def _declare_totals(self) -> None:
        queried, cached = "in terms of number of queried", "in terms of number of cached"
        external = "External prefix cache {} from KV connector cross-instance cache sharing"
        self._queries = self._counter("prefix_cache_queries", f"Prefix cache queries, {queried} tokens.")
        self._hits = self._counter("prefix_cache_hits", f"Prefix cache hits, {cached} tokens.")
        self._counter("external_prefix_cache_queries", f"{external.format('queries')}, {queried} tokens.")
        self._counter("external_prefix_cache_hits", f"{external.format('hits')}, {cached} tokens.")
        self._counter("mm_cache_queries", f"Multi-modal cache queries, {queried} items.")
        self._counter("mm_cache_hits", f"Multi-modal cache hits, {cached} items.")
        self._preemptions = self._counter("num_preemptions", "Cumulative number of preemption from the engine.")
        self._prompt_total = self._counter("prompt_tokens", "Number of prefill tokens processed.")
        self._by_source = self._counter(
            "prompt_tokens_by_source",
            "Number of prompt tokens by source.",
            *self._each("source", "local_compute", "local_cache_hit", "external_kv_transfer"),
        )
        self._cached_total = self._counter("prompt_tokens_cached", "Number of cached prompt tokens (local + external).")
        self._cached_by_source = self._counter(
            "prompt_tokens_cached_by_source",
            "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host (offloaded to "
            "DRAM), disk, p2p (transferred from another vLLM instance) or external_unspecified. Counted at admission; "
            "sums to vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.",
            *self._each("source", "device", "host", "p2p", "disk", "external_unspecified"),
        )
        self._generation_total = self._counter("generation_tokens", "Number of generation tokens processed.")
        self._success = self._counter(
            "request_success",
            "Count of successfully processed requests.",
            *self._each("finished_reason", *FINISHED_REASONS),
        )
        self._rejections = self._counter(
            "admission_rejections",
            "Number of admission attempts rejected by a queue limit, by reason.",
            *((*self._model, ("reason", reason)) for reason in ("max_num_queued_reqs", "max_num_queued_tokens")),
        )

    def _declare_histograms(self) -> None:
        new = self._histogram
        phase = "Histogram of time spent in {} phase for request."
        self._prompt_tokens = new("request_prompt_tokens", "Number of prefill tokens processed.", TOKENS)
        self._generation_tokens = new("request_generation_tokens", "Number of generation tokens processed.", TOKENS)
        self._iteration = new(
            "iteration_tokens_total", "Histogram of number of tokens per engine_step.", ITERATION_TOKENS
        )
        self._longest = new(
            "request_max_num_generation_tokens",
            "Histogram of maximum number of requested generation tokens.",
            TOKENS,
        )
        self._params_n = new("request_params_n", "Histogram of the n request parameter.", (1, 2, 5, 10, 20))
        self._params_max_tokens = new(
            "request_params_max_tokens", "Histogram of the max_tokens request parameter.", TOKENS
        )
        self._first_token = new(
            "time_to_first_token_seconds", "Histogram of time to first token in seconds.", FIRST_TOKEN_S
        )
        self._token_gap = new(
            "inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", TOKEN_GAP_S
        )
        self._per_token = new(
            "request_time_per_output_token_seconds",
            "Histogram of time_per_output_token_seconds per request.",
            TOKEN_GAP_S,
        )
        self._whole = new("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", REQUEST_S)
        self._queue = new("request_queue_time_seconds", phase.format("WAITING"), REQUEST_S)
        self._inference = new("request_inference_time_seconds", phase.format("RUNNING"), REQUEST_S)
        self._prefill = new("request_prefill_time_seconds", phase.format("PREFILL"), REQUEST_S)
        self._decode = new("request_decode_time_seconds", phase.format("DECODE"), REQUEST_S)
        self._preemptions_each = new(
            "request_num_preemptions",
            "Histogram of the number of times a request was preempted.",
            (1, 2, 3, 4, 5, 10, 20),
        )
        self._computed = new(
            "request_prefill_kv_computed_tokens",
            "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
            TOKENS,
        )

    def _cache_config(self) -> Labels:
        """The labels of cache_config_info that say something about a simulated cache."""
        settings = self._engine.settings
        tokens = settings.blocks * settings.block_size
        described = {
            "block_size": settings.block_size,
            "cache_dtype": "auto",
            "enable_prefix_caching": settings.prefix_caching,
            "engine": 0,
            "kv_cache_max_concurrency": tokens / settings.model_len,
            "kv_cache_size_tokens": tokens,
            "num_gpu_blocks": settings.blocks,
            "num_gpu_blocks_override": settings.num_blocks,
            "prefix_caching_hash_algo": "blake2b",
            "sliding_window": None,
        }
        return tuple((name, str(value)) for name, value in described.items())

    def _each(self, name: str, *values: str) -> tuple[Labels, ...]:
        return tuple((*self._base, (name, value)) for value in values)

    def _gauge(self, name: str, text: str, *series: Labels) -> Gauge:
        gauge = Gauge(f"vllm:{name}", text, series or (self._base,))
        self._families.append(gauge)
        return gauge

    def _counter(self, name: str, text: str, *series: Labels) -> Counter:
        counter = Counter(f"vllm:{name}", text, series or (self._base,))
        self._families.append(counter)
        return counter

    def _histogram(self, name: str, text: str, bounds: tuple[float, ...]) -> Histogram:
        histogram = Histogram(f"vllm:{name}", text, self._base, bounds)
        self._families.append(histogram)
        return histogram


def _between(start: float | None, end: float | None) -> float:
    """Seconds between two moments; 0 when one of them never came."""
    return max(0.0, end - start) if start is not None and end is not None else 0.0
