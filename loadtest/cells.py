"""The cells of the table: what is asked of a server, and what is made of what came back."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from loadtest.client import ClosedLoop, Load, OpenLoop, Tally
from loadtest.processes import cpu_s, waited_s
from loadtest.prompts import Prompts

SATURATED = 0.9
"""Share of a core from which on a process, or the core itself, is taken to have no time left."""

MOST_S = 60.0
"""How long a window goes on in which nothing was there to be measured, as on a machine that is very busy."""

DISTURBED = 0.1
"""Share of the time from which on a server that was ready to run and could not was disturbed by other processes."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of load. Times in seconds.

    connections: of a closed loop, each with one request under way; of an open loop, those opened beforehand.
    rate: requests per second of an open loop, 0 for a closed one. events, step_ms: of each streamed answer.
    window_s: how long is measured; warm_s: how long is waited before that. spread_s: over how long the connections
    begin.
    """

    name: str
    title: str
    body: int
    connections: int
    window_s: float
    warm_s: float = 0.7
    rate: float = 0.0
    events: int = 0
    step_ms: int = 0
    spread_s: float = 0.0


CELLS = (
    Cell("A", "2 KB prompt, closed loop, 64 connections", 2048, 64, 3.0),
    Cell("B", "32 KB prompt, closed loop, 64 connections", 32 * 1024, 64, 3.0),
    Cell("C", "200-event streams without delay, closed loop, 64 streams", 2048, 64, 4.0, events=200),
    Cell("D", "2 KB prompt, open loop, 200 requests/s", 2048, 16, 8.0, rate=200.0),
    Cell("E", "256 streams of 100 events, 20 ms steps", 2048, 256, 6.0, events=100, step_ms=20, spread_s=2.0),
)


def quick(cell: Cell) -> Cell:
    """The same load for a moment only: enough to see that everything works, not to tell how fast it is."""
    return replace(
        cell,
        connections=min(cell.connections, 64),
        window_s=0.2,
        warm_s=0.1,
        spread_s=cell.spread_s / 20,
        events=min(cell.events, 10),
        rate=min(cell.rate, 50.0),
    )


@dataclass(frozen=True, slots=True)
class Target:
    """A server to measure. pids: its processes, whose CPU is its own. urls: where connections go, in turn."""

    name: str
    urls: Sequence[str]
    pids: Sequence[int]


class Meter:
    """CPU seconds of a target, of the stub and of this process, which is the client; and those the target waited."""

    def __init__(self, target: Sequence[int], stub: Sequence[int], client: int) -> None:
        self._parts = {"server": target, "stub": stub, "client": (client,)}
        self._server = target[0] if target else stub[0]

    def read(self) -> dict[str, float]:
        """By the names that results have. A kernel that does not count waiting leaves it at 0."""
        used = {name: cpu_s(pids) for name, pids in self._parts.items()}
        return used | {"waited": waited_s(self._server) or 0.0}


Result = dict[str, Any]


async def run_cell(cell: Cell, target: Target, meter: Meter) -> Result:
    """Load `target`, and return what one window of time showed."""
    prompts = iter(Prompts(cell.body, events=cell.events, step_ms=cell.step_ms))
    addresses = [(parts.hostname or "", parts.port or 0) for parts in map(urlsplit, target.urls)]
    loop: Load
    if cell.rate:
        loop = opened = OpenLoop(addresses, prompts, cell.events)
        await opened.start(cell.connections, cell.rate)
    else:
        loop = closed = ClosedLoop(addresses, prompts, cell.events)
        await closed.start(cell.connections, cell.spread_s)
    await asyncio.sleep(cell.warm_s)
    loop.tally = tally = Tally()
    before, began = meter.read(), perf_counter()
    await asyncio.sleep(cell.window_s)
    while not _has_something(cell, tally) and perf_counter() - began < MOST_S:  # noqa: ASYNC110 - as in `Load.end`
        await asyncio.sleep(0.02)
    after, wall_s = meter.read(), perf_counter() - began
    loop.tally = Tally()  # what ends from here on is no longer measured
    await loop.end()
    cpu = {name: after[name] - before[name] for name in after}
    first_error = loop.errors[0] if loop.errors else None
    return _result(cell, tally, cpu, wall_s) | {"errors": len(loop.errors), "error": first_error}


def _has_something(cell: Cell, tally: Tally) -> bool:
    """Events that are sent one by one come one by one, unless all of them were late."""
    return tally.requests > 0 and (not cell.step_ms or len(tally.gap) > 0)


def _result(cell: Cell, tally: Tally, cpu: dict[str, float], wall_s: float) -> Result:
    result: Result = {
        "seconds": wall_s,
        "requests": tally.requests,
        "rps": tally.requests / wall_s,
        "latency_p50_ms": _ms(tally.latency, 0.5),
        "latency_p99_ms": _ms(tally.latency, 0.99),
        "server_core": cpu["server"] / wall_s,
        "stub_core": cpu["stub"] / wall_s,
        "client_core": cpu["client"] / wall_s,
        "server_waited": cpu["waited"] / wall_s,
    }
    if cell.events:
        result |= {
            "events": tally.events,
            "events_per_s": tally.events / wall_s,
            "events_per_piece": tally.events / max(1, tally.pieces),
            "cpu_us_per_event": _per(cpu["server"] * 1e6, tally.events),
            "ttft_p50_ms": _ms(tally.ttft, 0.5),
            "ttft_p99_ms": _ms(tally.ttft, 0.99),
            "gap_p50_ms": _ms(tally.gap, 0.5),
            "gap_p99_ms": _ms(tally.gap, 0.99),
        }
    else:
        result["cpu_ms_per_request"] = _per(cpu["server"] * 1e3, tally.requests)
    if cell.rate:
        result["late_p99_ms"] = _ms(tally.late, 0.99)
    return result


def is_generator_limited(cell: Cell, result: Result) -> bool:
    """Whether stub and client had no time left while the server had: then rates and latencies are not the server's.

    CPU per request stays the server's own, though a server that is not busy batches less.
    """
    generator = result["stub_core"] + result["client_core"]
    return not cell.rate and generator > SATURATED and result["server_core"] < SATURATED


def is_disturbed(result: Result) -> bool:
    """Whether other processes of the machine took the server's time: then its rate and latency are not its own, and its
    CPU figures are too high by what cold caches cost.

    The bare stub shares its core with the client, so that its waiting says nothing.
    """
    waited: float = result["server_waited"]
    return bool(result["server_core"]) and waited > DISTURBED


def median_of(results: Sequence[Result]) -> Result:
    """The median over rounds of each figure; counts are added up, and errors too."""
    merged: Result = {}
    for name, first in results[0].items():
        values = [result[name] for result in results]
        if name in ("requests", "events", "errors", "seconds"):
            merged[name] = sum(values)
        elif name == "error":
            merged[name] = next((value for value in values if value), None)
        else:
            merged[name] = first if len(values) == 1 else _middle([value for value in values if value is not None])
    return merged


def spread_of(results: Sequence[Result], figure: str) -> list[float]:
    """Least and greatest value of a figure over the rounds."""
    values = [result[figure] for result in results if result.get(figure) is not None]
    return [min(values), max(values)] if values else []


def quantile(values: Sequence[float], share: float) -> float | None:
    """The value that `share` of all are not above; None without any."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _middle(values: Sequence[float]) -> float | None:
    if not values:
        return None
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _ms(values: Sequence[float], share: float) -> float | None:
    found = quantile(values, share)
    return None if found is None else found * 1000


def _per(total: float, count: int) -> float | None:
    return total / count if count else None
