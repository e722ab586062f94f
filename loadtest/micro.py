"""What single steps of the hot path cost, without sockets: a decision of the router, and reading a request's facts.

  PYTHONPATH=. python -m loadtest.micro [--json PATH] [--quick]

Each figure is nanoseconds of CPU per call, the best of some repetitions: what disturbs a measurement only adds to it.
A decision is RequestArrived and RequestFinished together, with 64 requests under way.
"""

import argparse
import gc
import random
import sys
import time
from collections.abc import Callable, Sequence
from itertools import islice

from app.api.body import DEFAULT_LIMITS
from app.api.facts import Inbound, read_request
from app.commands.report import add_json_argument, write_json
from app.core.fleet.commands import Dispatch
from app.core.fleet.events import HealthReported, LoadSampled, RequestArrived, RequestFinished, WorkerSeen
from app.core.fleet.load import LoadSample
from app.core.fleet.reasons import Outcome
from app.core.fleet.request import RequestFacts
from app.core.fleet.worker import Worker
from app.core.router import Router
from app.core.routing.policies import POLICIES, make_policy
from loadtest.prompts import MODEL, PATH, Prompts

FLEETS = (2, 64, 1000)

BODIES = (2 * 1024, 32 * 1024)

UNDER_WAY = 64

KEYS = 4096

REPEATS = 5

LEAST_S = 0.2
"""CPU time of one repetition."""


def decision_ns(policy: str, workers: int, least_s: float = LEAST_S) -> float:
    """One decision of `policy` among `workers` healthy ones with fresh load samples."""
    rng = random.Random(7)
    router = Router(make_policy(policy), rng)
    for number in range(workers):
        worker = Worker(f"10.0.0.1:{number}", f"http://10.0.0.1:{number}", "i1", {MODEL: b"{}"})
        sample = LoadSample(taken_at=0.0, running=rng.randrange(50), waiting=rng.randrange(5), own_in_flight=0)
        router.handle(WorkerSeen(worker), 0.0)
        for _ in range(2):
            router.handle(HealthReported(worker.id, "i1", healthy=True), 0.0)
        router.handle(LoadSampled(worker.id, "i1", sample), 0.0)
    facts = [RequestFacts(str(key), MODEL, PATH, b"session-%d" % key) for key in range(KEYS)]
    tokens = [_arrive(router, facts[number]) for number in range(UNDER_WAY)]

    def run(count: int) -> None:
        for number in range(count):
            place = number % UNDER_WAY
            router.handle(RequestFinished(tokens[place], Outcome.SERVED), 1.0)
            tokens[place] = _arrive(router, facts[number % KEYS])

    return _best_ns(run, least_s)


def facts_ns(size: int, least_s: float = LEAST_S) -> float:
    """Parsing and checking one body of `size` bytes, and taking the facts from it."""
    bodies = [request.partition(b"\r\n\r\n")[2] for request in islice(Prompts(size), 32)]
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), (b"user-agent", b"loadtest")]

    def run(count: int) -> None:
        for number in range(count):
            inbound = read_request(
                bodies[number % len(bodies)], headers, endpoint=PATH, request_id="r", aliases={}, limits=DEFAULT_LIMITS
            )
            assert isinstance(inbound, Inbound)

    return _best_ns(run, least_s)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.micro", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_json_argument(parser)
    parser.add_argument("--quick", action="store_true", help="short repetitions: does it work")
    args = parser.parse_args(argv)
    least_s = 0.005 if args.quick else LEAST_S
    decisions = {
        policy.name: {str(workers): round(decision_ns(policy.name, workers, least_s)) for workers in FLEETS}
        for policy in POLICIES
    }
    facts = {str(size): round(facts_ns(size, least_s)) for size in BODIES}
    if args.json:
        write_json(args.json, {"decision_ns": decisions, "facts_ns": facts})
    if args.json != "-":
        print("| ns per decision | " + " | ".join(f"{workers} workers" for workers in FLEETS) + " |")
        print("| --- |" + " ---: |" * len(FLEETS))
        for name, by_fleet in decisions.items():
            print(f"| {name} | " + " | ".join(str(value) for value in by_fleet.values()) + " |")
        print()
        for size, value in facts.items():
            print(f"Facts of a body of {size} bytes: {value} ns.")
    return 0


def _arrive(router: Router, facts: RequestFacts) -> int:
    verdict = router.handle(RequestArrived(facts), 1.0)[-1]
    assert isinstance(verdict, Dispatch)
    return verdict.token


def _best_ns(run: Callable[[int], None], least_s: float) -> float:
    """Nanoseconds of CPU per turn of `run(turns)`, with as many turns as take `least_s`."""
    turns = 16
    while (taken := _cpu_ns(run, turns)) < least_s * 1e9 / 4:
        turns *= 4
    turns = max(turns, int(turns * least_s * 1e9 / taken))
    return min(_cpu_ns(run, turns) for _ in range(REPEATS)) / turns


def _cpu_ns(run: Callable[[int], None], turns: int) -> int:
    gc.collect()
    began = time.thread_time_ns()
    run(turns)
    return time.thread_time_ns() - began


if __name__ == "__main__":
    sys.exit(main())
