"""Print the version of warmset, of Python and of the packages on the data path."""

import argparse
import platform
from importlib import metadata

from app import __version__
from app.commands.report import add_json_argument, write_json

PACKAGES = ("uvicorn", "uvloop", "httptools", "orjson", "redis", "httpx", "fastapi")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json_argument(parser)


def run(args: argparse.Namespace) -> int:
    versions = {name: metadata.version(name) for name in PACKAGES}
    if args.json:
        write_json(args.json, {"warmset": __version__, "python": platform.python_version(), "packages": versions})
    if args.json != "-":
        print(f"warmset {__version__} (Python {platform.python_version()})")
        for name, version in versions.items():
            print(f"  {name} {version}")
    return 0
