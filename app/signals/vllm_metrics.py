"""What the router needs of an engine's `/metrics`, found without parsing the rest.

A page of vLLM is 50-75 KB and is read once a second and worker, so only the lines that begin with a wanted name are
looked at. A name that is not there is None, unknown, and never 0: an idle engine says 0 itself.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

RUNNING = (b"vllm:num_requests_running",)
WAITING = (b"vllm:num_requests_waiting",)
KV_USAGE = (b"vllm:kv_cache_usage_perc", b"vllm:gpu_cache_usage_perc")
PREFIX_HITS = (b"vllm:prefix_cache_hits_total", b"vllm:gpu_prefix_cache_hits_total")
PREFIX_QUERIES = (b"vllm:prefix_cache_queries_total", b"vllm:gpu_prefix_cache_queries_total")
STEPS = (b"vllm:iteration_tokens_total_count", b"vllm:prompt_tokens_total", b"vllm:generation_tokens_total")
"""Grow while the engine works. All are read: the first is of every step, and not of every version."""

AWAKE = b"vllm:engine_sleep_state"
IS_AWAKE = b'sleep_state="awake"'

PROCESS_START = (b"process_start_time_seconds",)
"""Names by version of the engine, newest first. The first that is there is used alone: versions that rename a metric
expose both names for a while, and their sum would be twice the truth."""

ENGINES = ((b"\ndynamo_", "dynamo"), (b"\nsglang:", "sglang"), (b"\nvllm:", "vllm"))
"""Whose names a page has, and what that engine is called. The first counts: who wraps an engine repeats its metrics."""

SPEC_DECODE = b"\nvllm:spec_decode_num_drafts_total"
"""vLLM exposes it from its start on when, and only when, it decodes speculatively."""

MAX_VALUE = 1e15


@dataclass(frozen=True, slots=True)
class EngineMetrics:
    """One reading, over all engines (data-parallel ranks) and model names behind the address. None: not said.

    running, waiting: requests, summed. prefix_hits, prefix_queries: tokens since the start, summed.
    kv_usage: share of KV blocks in use, 0..1, of the fullest engine. Which engine a request goes to is not ours to
    choose, and an engine preempts when it is full itself: a mean over one full and one empty engine would hide that.
    engine: its name, "" when it is none that we know. spec_decode: whether it decodes speculatively.
    steps: a number that grows while the engine works. is_asleep: an engine was put to sleep.
    process_start: seconds since the epoch on the worker's clock, good for telling processes apart and for nothing else.
    """

    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    prefix_hits: float | None = None
    prefix_queries: float | None = None
    process_start: float | None = None
    engine: str = ""
    spec_decode: bool | None = None
    steps: float | None = None
    is_asleep: bool = False


def read_metrics(page: bytes) -> EngineMetrics:
    """Read a page in the Prometheus text format. Never raises: what it cannot read is None."""
    page = b"\n" + page  # every line has its beginning then
    running, waiting, usage = _total(page, RUNNING), _total(page, WAITING), _first(page, KV_USAGE)
    starts = _first(page, PROCESS_START)
    return EngineMetrics(
        None if running is None else round(running),
        None if waiting is None else round(waiting),
        max(usage) if usage and max(usage) <= 1 else None,
        _total(page, PREFIX_HITS),
        _total(page, PREFIX_QUERIES),
        starts[0] if len(starts) == 1 else None,
        next((engine for begin, engine in ENGINES if begin in page), ""),
        SPEC_DECODE in page if b"\nvllm:" in page else None,
        _all(page, STEPS),
        _sleeps(page),
    )


def _all(page: bytes, names: tuple[bytes, ...]) -> float | None:
    """The sum of all that are there."""
    totals = [total for name in names if (total := _total(page, (name,))) is not None]
    return sum(totals) if totals else None


def _sleeps(page: bytes) -> bool:
    lines = _lines(page, AWAKE)
    return any(IS_AWAKE in line and _number(line[line.rfind(b"}") + 1 :]) == 0 for line in lines)


def _total(page: bytes, names: tuple[bytes, ...]) -> float | None:
    values = _first(page, names)
    return sum(values) if values else None


def _first(page: bytes, names: tuple[bytes, ...]) -> list[float]:
    """The values of the first name that has any; none when one of them is not a sane number."""
    for name in names:
        texts = list(_values(page, name))
        if texts:
            values = [_number(text) for text in texts]
            return [value for value in values if value is not None] if None not in values else []
    return []


def _values(page: bytes, name: bytes) -> Iterator[bytes]:
    """The value text of each sample of `name`."""
    for line in _lines(page, name):
        # Label values may hold spaces and braces; behind the last brace are only the value and a time stamp.
        yield line[line.rfind(b"}") + 1 :] if line[:1] == b"{" else line


def _lines(page: bytes, name: bytes) -> Iterator[bytes]:
    """What follows `name` in each of its samples: it must begin the line, and be all of the metric's name."""
    begin = b"\n" + name
    at = page.find(begin)
    while at >= 0:
        at += len(begin)
        end = page.find(b"\n", at)
        line = page[at : end if end >= 0 else len(page)]
        if line[:1] in (b"{", b" ", b"\t"):
            yield line
        at = page.find(begin, end) if end >= 0 else -1


def _number(text: bytes) -> float | None:
    words = text.split()
    if not words:
        return None
    try:
        value = float(words[0])
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= MAX_VALUE else None
