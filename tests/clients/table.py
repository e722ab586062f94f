"""Which SDK was tried with what: printed at the end of the lane, and shown in the README with all of it passed."""

import re
from collections.abc import Mapping

NAMED = re.compile(r"\[(.+)-(\w+)\]$")
NO = "–"


def render(passed: Mapping[str, bool]) -> str:
    """As Markdown. passed: id of a test -> whether it passed, of those that ran."""
    cells: dict[str, dict[str, str]] = {}
    for test, is_passed in passed.items():
        found = NAMED.search(test)
        if found is not None:
            cells.setdefault(found[2], {})[found[1]] = "passed" if is_passed else "FAILED"
    sdks = list(dict.fromkeys(sdk for row in cells.values() for sdk in row))
    lines = ["| | " + " | ".join(sdks) + " |", "|---" * (len(sdks) + 1) + "|"]
    for name, row in cells.items():
        lines.append(f"| {name.replace('_', ' ')} | " + " | ".join(row.get(sdk, NO) for sdk in sdks) + " |")
    return "\n".join(lines)
