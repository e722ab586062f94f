"""What the hot path costs: CPU per request and per event, added latency, memory.

  PYTHONPATH=. python -m loadtest.hotpath                     about five minutes
  PYTHONPATH=. python -m loadtest.hotpath --json report.json  the same, with every figure in a file
  PYTHONPATH=. python -m loadtest.hotpath --quick             some seconds: does it work; its figures mean nothing

A gateway with one serving process stands in front of four stub workers. It has a core of its own; the stub and the
client share the other. Each round measures, cell by cell, the stub itself (`direct`), uvicorn with an application that
answers itself (`uvicorn`), and the gateway; figures are medians over the rounds. Ratios between these rows travel to
other machines, the milliseconds do not. loadtest/README.md says what each figure means.

Exit status: 0, or 1 when a request failed or something did not start.
"""

import argparse
import gc
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from importlib import metadata
from platform import python_version
from typing import Any

import uvloop

from app.commands.report import add_json_argument, progress, write_json
from loadtest.cells import (
    CELLS,
    Cell,
    Meter,
    Result,
    Target,
    is_disturbed,
    is_generator_limited,
    median_of,
    quick,
    run_cell,
    spread_of,
)
from loadtest.processes import Busy, Cores, GatewayServer, NotReady, Server, alone, cpu_s, rss_mib, tree
from loadtest.table import render

WORKERS = 4

ROUNDS = 3

IDLE_S = 5.0

TARGETS = {"cpu_ms_per_request": 0.20, "cpu_us_per_event": 10.0}
"""What one process may cost in cells A and C, without an access log."""

PACKAGES = ("uvicorn", "uvloop", "httptools", "orjson")

ACCESS_LOG = "gateway, access log"


class Servers:
    """Everything that runs during the test."""

    def __init__(self, cores: Cores, policy: str | None, stack: ExitStack) -> None:
        def start(server: Server) -> Server:
            stack.callback(server.end)
            return server

        self.stub = start(Server(["-m", "loadtest.stub", "--workers", str(WORKERS)], cores.load, sys.stderr.fileno()))
        workers = self.stub.read_urls()
        baseline = start(Server(["-m", "loadtest.baseline"], cores.gateway, sys.stderr.fileno()))
        gateways = [
            GatewayServer(workers, cores.gateway, log_level=level, policy=policy) for level in ("warning", "info")
        ]
        for gateway in gateways:
            start(gateway)
        baseline_urls = baseline.read_urls()
        for gateway in gateways:
            gateway.wait_ready()
        self.gateway = gateways[0]
        self.gateway_pids = self.gateway.pids
        self.stub_pids = tree(self.stub.process.pid)
        self.targets = [
            Target("direct", workers, ()),
            Target("uvicorn", baseline_urls, tree(baseline.process.pid)),
            Target("gateway", [self.gateway.url], self.gateway_pids),
        ]
        self.logging = Target(ACCESS_LOG, [gateways[1].url], gateways[1].pids)

    def targets_of(self, cell: Cell) -> list[Target]:
        return [*self.targets, self.logging] if cell.name == "A" else self.targets


def main(argv: Sequence[str] | None = None) -> int:
    args = _arguments(argv)
    cores = Cores(is_pinned=not args.quick)
    with ExitStack() as stack:
        try:
            if not args.quick:
                stack.enter_context(alone(progress))
            began, load_before = datetime.now(UTC), os.getloadavg()
            servers = Servers(cores, args.policy, stack)
        except (NotReady, Busy) as error:
            print(f"loadtest: {error}", file=sys.stderr)
            return 1
        stack.enter_context(_pinned(cores.load))
        cells = [quick(cell) if args.quick else cell for cell in CELLS if cell.name in args.cells]
        raw = _measure(cells, servers, 1 if args.quick else args.rounds)
        idle = _idle(servers, 0.5 if args.quick else IDLE_S)
        memory = _memory(servers)
    report = {
        "date": began.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": _commit(),
        "quick": args.quick,
        "rounds": len(next(iter(next(iter(raw.values())).values()))),
        "machine": {
            "cores": len(cores.all),
            "is_split": cores.is_split,
            "python": python_version(),
            "packages": {name: metadata.version(name) for name in PACKAGES},
            "load_average_before": list(load_before),
            "load_average_after": list(os.getloadavg()),
        },
        "cells": {cell.name: _summary(cell, raw[cell.name]) for cell in cells},
        "idle": idle,
        "memory": memory,
    }
    report["targets"] = _targets(report["cells"])
    report["warnings"] = _warnings(cells, report["cells"], cores)
    if args.json:
        write_json(args.json, report)
    if args.json != "-":
        print(render(report), flush=True)
    return 1 if any(row["errors"] for cell in report["cells"].values() for row in cell["rows"].values()) else 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.hotpath",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_json_argument(parser)
    parser.add_argument("--quick", action="store_true", help="one short round, to see that everything works")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help="default: %(default)s")
    parser.add_argument("--cells", default="ABCDE", metavar="LETTERS", help="only these cells (default: %(default)s)")
    parser.add_argument("--policy", metavar="NAME", help="the gateway's policy (default: its own default)")
    args = parser.parse_args(argv)
    if args.rounds < 1 or not any(cell.name in args.cells for cell in CELLS):
        parser.error("nothing to measure: --rounds is at least 1, and --cells names some of A to E")
    return args


def _measure(cells: Sequence[Cell], servers: Servers, rounds: int) -> dict[str, dict[str, list[Result]]]:
    """Cell name -> target name -> one result per round. The targets of a cell follow each other within a round, so that
    what else the machine does meets all of them."""
    raw: dict[str, dict[str, list[Result]]] = {cell.name: {} for cell in cells}
    gc.freeze()
    for number in range(1, rounds + 1):
        for cell in cells:
            for target in servers.targets_of(cell):
                progress(f"round {number} of {rounds}: {cell.name} ({cell.title}), {target.name}")
                meter = Meter(target.pids, servers.stub_pids, os.getpid())
                result = uvloop.run(run_cell(cell, target, meter))
                raw[cell.name].setdefault(target.name, []).append(result)
                gc.collect()
    return raw


def _idle(servers: Servers, seconds: float) -> dict[str, float]:
    """What the gateway uses when nobody asks anything: probes, scrapes, its store."""
    progress("idle")
    serving = servers.gateway.serving_pids
    before, serving_before, began = cpu_s(servers.gateway_pids), cpu_s(serving), time.monotonic()
    time.sleep(seconds)
    wall_s = time.monotonic() - began
    return {
        "workers": WORKERS,
        "serving_cpu_ms_per_s": (cpu_s(serving) - serving_before) * 1000 / wall_s,
        "all_cpu_ms_per_s": (cpu_s(servers.gateway_pids) - before) * 1000 / wall_s,
    }


def _memory(servers: Servers) -> dict[str, float]:
    """Resident MiB. Pages that processes share are counted in each."""
    return {
        "serving_rss_mib": sum(map(rss_mib, servers.gateway.serving_pids)),
        "control_rss_mib": rss_mib(servers.gateway.process.pid),
        "all_rss_mib": sum(map(rss_mib, servers.gateway_pids)),
    }


def _summary(cell: Cell, by_target: dict[str, list[Result]]) -> dict[str, Any]:
    figure = "cpu_us_per_event" if cell.events else "cpu_ms_per_request"
    rows = {name: median_of(results) for name, results in by_target.items()}
    for name, results in by_target.items():
        rows[name]["spread"] = {figure: spread_of(results, figure), "rps": spread_of(results, "rps")}
        rows[name]["is_generator_limited"] = is_generator_limited(cell, rows[name])
    gateway, uvicorn, direct = rows["gateway"], rows["uvicorn"], rows["direct"]
    return {
        "title": cell.title,
        "rows": rows,
        "ratios": {
            f"{figure}, gateway / uvicorn": _ratio(gateway[figure], uvicorn[figure]),
            "rps, gateway / direct": _ratio(gateway["rps"], direct["rps"]),
            "rps, gateway / uvicorn": _ratio(gateway["rps"], uvicorn["rps"]),
        },
        "added": {
            name: {
                "p50_ms": _difference(rows[name]["latency_p50_ms"], direct["latency_p50_ms"]),
                "p99_ms": _difference(rows[name]["latency_p99_ms"], direct["latency_p99_ms"]),
            }
            for name in rows
            if name != "direct"
        },
    }


def _targets(cells: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for cell, figure in (("A", "cpu_ms_per_request"), ("C", "cpu_us_per_event")):
        value = cells[cell]["rows"]["gateway"][figure] if cell in cells else None
        if value is not None:
            found[f"{cell} {figure}"] = {"at_most": TARGETS[figure], "is": value, "met": value <= TARGETS[figure]}
    return found


def _warnings(cells: Sequence[Cell], summaries: dict[str, Any], cores: Cores) -> list[str]:
    found = []
    if not cores.is_split:
        found.append("one core only: gateway, stub and client disturb each other; only CPU figures can be used")
    for cell in cells:
        for name, row in summaries[cell.name]["rows"].items():
            if row["errors"]:
                found.append(f"{cell.name}, {name}: {row['errors']} errors, such as: {row['error']}")
            if is_disturbed(row):
                found.append(
                    f"{cell.name}, {name}: the server could have run for {row['server_waited']:.0%} of the time and "
                    "had no core, as other processes of this machine had it: measure again, its CPU is too high too"
                )
            if name != "direct" and row["is_generator_limited"]:
                found.append(
                    f"{cell.name}, {name}: stub and client had no time left ({row['stub_core']:.0%} and "
                    f"{row['client_core']:.0%} of a core) and the server had ({row['server_core']:.0%}): "
                    "its rate and latency are theirs"
                )
    return found


def _ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


def _difference(value: float | None, base: float | None) -> float | None:
    return value - base if value is not None and base is not None else None


def _commit() -> str:
    """Of the checkout, with a mark when it has changes; empty outside of one."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return found.stdout.strip()


@contextmanager
def _pinned(cores: set[int]) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


if __name__ == "__main__":
    sys.exit(main())
