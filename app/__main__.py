"""The command line: `warmset COMMAND`. Finds the command, parses its arguments, runs it."""

import argparse
import difflib
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
    subs: dict[str, argparse.ArgumentParser] = {}
    asked = next((argument for argument in argv if not argument.startswith("-")), None)
    for command in COMMANDS:
        sub = subs[command.name] = commands.add_parser(
            command.name, help=command.summary, description=command.summary, allow_abbrev=False
        )
        if command.name == asked:
            module = importlib.import_module(command.module)
            sub.description = module.__doc__
            sub.formatter_class = argparse.RawDescriptionHelpFormatter
            module.add_arguments(sub)
            sub.set_defaults(run=module.run)
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        subs[args.command].error(_not_known(unknown, subs[args.command]))
    status: int = args.run(args)
    return status


def _not_known(unknown: Sequence[str], parser: argparse.ArgumentParser) -> str:
    """All that is not known, each with the flag that was perhaps meant."""
    flags = [flag for action in parser._actions for flag in action.option_strings]
    words = []
    for argument in unknown:
        near = difflib.get_close_matches(argument.partition("=")[0], flags, n=1)
        words.append(f"{argument} (did you mean {near[0]}?)" if near else argument)
    return f"not known: {', '.join(words)}"


if __name__ == "__main__":
    sys.exit(main())
