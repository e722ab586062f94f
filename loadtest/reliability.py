"""Load test: what clients get of a fleet while something fails. Shares within one run; no time of one machine.

  PYTHONPATH=. .venv/bin/python -m loadtest.reliability            # about four minutes; prints the table
  PYTHONPATH=. .venv/bin/python -m loadtest.reliability --quick    # some seconds: does it work; no measurement

Three simulated workers that hold a few requests each and refuse more (429's cousin 503 of `--max-num-queued-reqs`),
one gateway, and an open loop: requests are sent when they are due, whatever came of the earlier ones. What the fleet
can do is measured first, in the same run, with as many requests as it holds always under way.

  overload    three times what it can do; then half of it. Goodput is answers with status 200 by what the fleet can do.
  black hole  half of it, with a fourth worker that fails each request in a moment and says that it is healthy.
  store       half of it, while the store stands still.

Everything runs on 127.0.0.1, is bounded in requests and time, and ends with the command. Exit status 1: a figure is not
what the README promises.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from app.commands.simulated import SimulatedFleet
from app.sim.worker.options import WorkerOptions
from loadtest.processes import Busy, GatewayServer, NotReady, alone, tree

MODEL = "m"
WORKERS = 3
SEQS, QUEUED = 8, 12
"""Requests in the batch of one worker, and in batch and queue together."""
TOKENS = 64
SPEED = 0.8
LATE_S = 60.0
"""After which a request counts as failed."""

BODY = json.dumps({"model": MODEL, "prompt": "x", "max_tokens": TOKENS, "ignore_eos": True}).encode()


HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: g\r\nconnection: close\r\ncontent-type: application/json\r\n"
HEAD += b"content-length: %d\r\n\r\n" % len(BODY)


@dataclass
class Seen:
    """When each request was due, and how it ended: its status, 0 for none."""

    ended: list[tuple[float, float, int]] = field(default_factory=list)

    def statuses(self, start: float = 0.0, end: float = float("inf")) -> Counter[int]:
        """Of the requests that were due then."""
        return Counter(status for due, _, status in self.ended if start <= due < end)

    def good_per_s(self, start: float, end: float) -> float:
        """Good answers that ended then."""
        return sum(1 for _, at, status in self.ended if start <= at < end and status == 200) / (end - start)


async def ask(url: str, seen: Seen) -> None:
    due = time.monotonic()
    status = 0
    try:
        async with asyncio.timeout(LATE_S):
            parts = urlsplit(url)
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            try:
                writer.write(HEAD + BODY)
                answer = await reader.read()
                status = int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else 0
            finally:
                writer.close()
    except (OSError, TimeoutError, ValueError):
        pass
    seen.ended.append((due, time.monotonic(), status))


async def closed_loop(url: str, at_once: int, seconds: float) -> Seen:
    """So many requests always under way."""
    seen = Seen()
    end = time.monotonic() + seconds

    async def again() -> None:
        while time.monotonic() < end:
            await ask(url, seen)

    await asyncio.gather(*(again() for _ in range(at_once)))
    return seen


async def open_loop(url: str, rate: float, seconds: float, seen: Seen) -> None:
    """`rate` requests per second, each when it is due; returns when all have ended."""
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            group.create_task(ask(url, seen))


class BlackHole:
    """A worker that is well by its own word, and fails each request at once. failed: how many."""

    def __init__(self) -> None:
        self.failed = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = {
            b"/health": b"",
            b"/metrics": b"vllm:num_requests_running 0.0\nvllm:num_requests_waiting 0.0\n",
            b"/v1/models": json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode(),
            b"/version": b'{"version":"0.32.0"}',
        }
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1]
                length = next(
                    (line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")), b":0"
                )
                body = await reader.readexactly(int(length.split(b":")[1]))
                self.failed += body == BODY
                status, body = (200, said[path]) if path in said else (500, b"{}")
                writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body))
        except (OSError, asyncio.IncompleteReadError):
            writer.close()


class Scene:
    """The fleet, and what it can do. scale: of all times, 1 for a measurement."""

    def __init__(self, fleet: SimulatedFleet, scale: float) -> None:
        self.fleet = fleet
        self.scale = scale
        self.capacity = 0.0

    def gateway(self, stack: ExitStack, *more: str) -> GatewayServer:
        cores = set(os.sched_getaffinity(0))
        started = GatewayServer([*self.fleet.urls, *more], cores, log_level="error", policy="least_load")
        stack.callback(started.end)
        started.wait_ready()
        return started


async def measure_capacity(scene: Scene) -> None:
    with ExitStack() as stack:
        gateway = scene.gateway(stack)
        began = time.monotonic()
        seen = await closed_loop(gateway.url, WORKERS * SEQS, 15 * scene.scale)
        # The first answers come all at once, and so do the last.
        scene.capacity = seen.good_per_s(began + 3 * scene.scale, began + 15 * scene.scale)
        if not scene.capacity:
            raise NotReady(f"the fleet served nothing: {dict(seen.statuses())}")


async def overload(scene: Scene) -> dict[str, str]:
    with ExitStack() as stack:
        gateway, seen, began = scene.gateway(stack), Seen(), time.monotonic()
        await open_loop(gateway.url, 3 * scene.capacity, 40 * scene.scale, seen)
        goodput = seen.good_per_s(began + 5 * scene.scale, began + 40 * scene.scale) / scene.capacity
        after, over = Seen(), time.monotonic()
        await open_loop(gateway.url, scene.capacity / 2, 30 * scene.scale, after)
        last_bad = max((due for due, _, status in after.ended if status != 200), default=over)
        statuses = seen.statuses()
        refused = {status: count for status, count in sorted(statuses.items()) if status != 200}
        check(goodput >= 0.9, "goodput under three times the load is below 0.9 of what the fleet can do")
        check(last_bad - over < 30 * scene.scale, "requests were still refused 30 s after the overload had ended")
        check(set(statuses) <= {200, 429, 503}, f"clients got something else than an answer or a refusal: {statuses}")
        return {
            "goodput / capacity": f"{goodput:.2f}",
            "others got": ", ".join(
                f"{status}: {count / sum(statuses.values()):.0%}" for status, count in refused.items()
            ),
            "last refusal after it ended": f"{last_bad - over:.1f} s",
        }


async def black_hole(scene: Scene) -> dict[str, str]:
    hole = BlackHole()
    async with hole.listening() as url:
        with ExitStack() as stack:
            gateway, seen = await asyncio.to_thread(scene.gateway, stack, url), Seen()
            await open_loop(gateway.url, scene.capacity / 2, 60 * scene.scale, seen)
    total = len(seen.ended)
    bad = total - seen.statuses()[200]
    # Five in a row, then one after 5 s, 10 s, 20 s: each that is sent there fails.
    check(hole.failed <= 10, f"the worker that fails was sent {hole.failed} requests")
    check(bad == hole.failed, f"{bad} requests failed, and {hole.failed} of them at the worker that fails")
    return {"requests sent there": f"{hole.failed} of {total}", "its even share": f"{total // 4}"}


async def store_outage(scene: Scene) -> dict[str, str]:
    with ExitStack() as stack:
        gateway, seen = scene.gateway(stack), Seen()
        store = store_of(gateway)
        load = asyncio.ensure_future(open_loop(gateway.url, scene.capacity / 2, 40 * scene.scale, seen))
        await asyncio.sleep(10 * scene.scale)
        stopped = time.monotonic()
        os.kill(store, signal.SIGSTOP)
        try:
            await asyncio.sleep(20 * scene.scale)
        finally:
            os.kill(store, signal.SIGCONT)
        back = time.monotonic()
        await load
        before, during = seen.good_per_s(stopped - 5 * scene.scale, stopped), seen.good_per_s(stopped, back)
        bad = len(seen.ended) - seen.statuses()[200]
        check(bad == 0, f"{bad} requests failed while the store stood still")
        check(during >= 0.8 * before, "goodput fell while the store stood still")
        return {"failed": f"{bad} of {len(seen.ended)}", "goodput / before": f"{during / before:.2f}"}


def store_of(gateway: GatewayServer) -> int:
    """The embedded store of a gateway."""
    for pid in tree(gateway.process.pid):
        name = Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip()
        if "valkey" in name or "redis" in name:
            return pid
    raise NotReady("the gateway has no store of its own")


PROBLEMS: list[str] = []
SCENARIOS: dict[str, Callable[[Scene], Awaitable[dict[str, str]]]] = {
    "overload x3": overload,
    "black hole": black_hole,
    "store outage": store_outage,
}


def check(holds: bool, problem: str) -> None:
    if not holds:
        PROBLEMS.append(problem)


async def run(scale: float) -> list[str]:
    options = WorkerOptions(
        port=0, served_model_names=(MODEL,), speed=SPEED / scale, max_num_seqs=SEQS, max_num_queued_reqs=QUEUED
    )
    lines = []
    with SimulatedFleet([options] * WORKERS) as fleet:
        scene = Scene(fleet, scale)
        await measure_capacity(scene)
        for name, scenario in SCENARIOS.items():
            figures = await scenario(scene)
            lines += [f"| {name} | {what} | {figure} |" for what, figure in figures.items()]
    return ["| | | |", "|---|---|---|", *lines]


def main() -> int:
    parser = argparse.ArgumentParser(prog="loadtest.reliability", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="some seconds: does it work; no measurement")
    args = parser.parse_args()
    try:
        with alone(lambda text: print(text, file=sys.stderr)):
            lines = asyncio.run(run(0.1 if args.quick else 1.0))
    except (NotReady, Busy) as error:
        print(f"loadtest.reliability: {error}", file=sys.stderr)
        return 1
    print("\n".join(lines))
    if args.quick:
        return 0
    for problem in PROBLEMS:
        print(f"not as promised: {problem}", file=sys.stderr)
    return 1 if PROBLEMS else 0


if __name__ == "__main__":
    sys.exit(main())
