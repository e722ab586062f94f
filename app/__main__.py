"""The command line: `warmset COMMAND`. Finds the command, parses its arguments, runs it."""

import argparse
import importlib
import sys
from collections.abc import Sequence

from app.commands import COMMANDS

DESCRIPTION = "Routing control plane and OpenAI-compatible gateway in front of vLLM workers."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; argparse exits with 2 on arguments that it cannot take."""
    argv = sys.argv[1:] if argv is None else list(argv)
    parser = argparse.ArgumentParser(prog="warmset", description=DESCRIPTION)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    asked = next((argument for argument in argv if not argument.startswith("-")), None)
    for command in COMMANDS:
        sub = commands.add_parser(command.name, help=command.summary, description=command.summary)
        if command.name == asked:
            module = importlib.import_module(command.module)
            sub.description = module.__doc__
            sub.formatter_class = argparse.RawDescriptionHelpFormatter
            module.add_arguments(sub)
            sub.set_defaults(run=module.run)
    args = parser.parse_args(argv)
    status: int = args.run(args)
    return status


if __name__ == "__main__":
    sys.exit(main())
