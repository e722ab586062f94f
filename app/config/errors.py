"""What can be wrong with a configuration, and how it is told."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

MASK = "********"

SHOWN_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Problem:
    """where: the flag, variable or file position that the operator wrote; what: what is wrong and what is allowed."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class ConfigError(Exception):
    """The configuration cannot be used. Lists every problem; holds no secret."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        head = "1 problem" if count == 1 else f"{count} problems"
        super().__init__("\n".join([f"{head} in the configuration", *(f"  {problem}" for problem in self.problems)]))


def shown(value: object) -> str:
    """`value` as it may stand in an error: on one line, not long, and without the user part of a URL."""
    text = re.sub(r"//[^/\s]*@", f"//{MASK}@", value) if isinstance(value, str) else value
    written = repr(text)
    return written if len(written) <= SHOWN_CHARACTERS else written[:SHOWN_CHARACTERS] + "…"
