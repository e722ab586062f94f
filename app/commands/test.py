"""Run the project's tests, from a checkout (`./warmset test`): style, types, contracts, then the tests themselves.

  ./warmset test                    the default run; a few minutes on two cores, needs nothing but this machine
  ./warmset test --vllm             the lane against real vLLM servers (CPU build, tiny models; installs them once)
  ./warmset test --clients          real SDKs (Python and Node, installed once) before real vLLM; needs Node 20
  ./warmset test --faults           hostile clients, random cuts, a soak; about a minute
  ./warmset test -- tests/core -x   only pytest, with these arguments (after a lane: within it)

Exit status: 0 when everything passed, 1 when something failed, 2 outside of a checkout.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from app.commands.report import add_json_argument, progress, write_json

ROOT = Path(__file__).resolve().parents[2]


class Check(NamedTuple):
    name: str
    command: tuple[str, ...]


def _module(name: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", name, *arguments)


def _pytest(*arguments: str) -> tuple[str, ...]:
    return _module("pytest", "-q", *arguments)


CODE = ("app", "tests", "loadtest")

LANES = {name: Path("tests", name) for name in ("vllm", "clients", "faults")}
"""Long lanes: flag `--NAME` -> the folder of its tests, which the default run leaves out."""

DEFAULT_CHECKS = (
    Check("format", _module("ruff", "format", "--check", "--quiet", *CODE)),
    Check("lint", _module("ruff", "check", "--quiet", *CODE)),
    Check("types", _module("mypy")),
    Check("contracts", (str(Path(sys.executable).with_name("lint-imports")), "--no-cache")),
    # Two at a time: most of them wait for something most of the time.
    Check("tests", _pytest("-n", "2", "--dist", "loadgroup", *(f"--ignore={folder}" for folder in LANES.values()))),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for lane, folder in LANES.items():
        parser.add_argument(f"--{lane}", action="store_true", help=f"run only the lane in {folder}")
    add_json_argument(parser)
    parser.add_argument("pytest", nargs="*", metavar="ARGUMENT", help="after --: only pytest, with these arguments")


def run(args: argparse.Namespace) -> int:
    if not (ROOT / "pyproject.toml").exists() or not (ROOT / "tests").is_dir():
        print("warmset test: the tests are not part of the installed package; run it from a checkout", file=sys.stderr)
        return 2
    results = []
    for check in _asked(args):
        progress(f"== {check.name}")
        began = time.monotonic()
        # With `--json -` standard output is the report's.
        out = sys.stderr if args.json == "-" else None
        status = subprocess.run(check.command, cwd=ROOT, stdout=out, check=False).returncode
        seconds = round(time.monotonic() - began, 1)
        results.append({"check": check.name, "passed": status == 0, "seconds": seconds})
    if args.json:
        write_json(args.json, {"passed": all(result["passed"] for result in results), "checks": results})
    if args.json != "-":
        for result in results:
            print(
                f"{'passed' if result['passed'] else 'FAILED'}  {result['check']} ({result['seconds']} s)", flush=True
            )
    return 0 if all(result["passed"] for result in results) else 1


def _asked(args: argparse.Namespace) -> list[Check]:
    lanes = [Check(lane, _pytest(str(folder), *args.pytest)) for lane, folder in LANES.items() if getattr(args, lane)]
    if lanes:
        return lanes
    if args.pytest:
        return [Check("tests", _pytest(*args.pytest))]
    return list(DEFAULT_CHECKS)
