"""What every command that reports shares: `--json PATH` and a progress line."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any


def add_json_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="PATH", help="write the report as JSON to PATH ('-' for standard output)")


def write_json(path: str, report: dict[str, Any]) -> None:
    """Write `report` with stable key order; `-` is standard output, where nothing else is then printed."""
    text = json.dumps(report, indent=2) + "\n"
    if path == "-":
        sys.stdout.write(text)
    else:
        Path(path).write_text(text, encoding="utf-8")


def progress(text: str) -> None:
    """Show one line of progress on a terminal; a pipe stays quiet."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)
