"""The command line, one file per command.

A command module has `add_arguments(parser)` and `run(args) -> int` (the exit status). It is imported only when it is
the one that was asked for, so that a light command starts in a fraction of a second.
"""

from typing import NamedTuple


class Command(NamedTuple):
    name: str
    summary: str

    @property
    def module(self) -> str:
        return f"app.commands.{self.name}"


COMMANDS = (
    Command("up", "try it: a gateway, a store and simulated workers, in one terminal"),
    Command("serve", "run the gateway in front of your workers"),
    Command("key", "make a key for a tenant"),
    Command("worker", "run one simulated vLLM worker"),
    Command("test", "run the project's tests (from a checkout)"),
    Command("version", "print the version"),
)
