"""The marks in every order of events; and the designs that others shipped, each caught."""

from functools import partial

import pytest

from app.core.overload.marks import MarkSheet
from tests.core.overload.explorer import Broken, Explorer, Rules
from tests.core.overload.mutants import BareLease, ClearOnAnyHealthy, NextSample, SharedSet

WORLDS = (
    Rules("one router"),
    Rules("silent monitor", is_silent=True, lease=3.0),
    Rules("reordered and repeated", may_reorder=True, may_repeat=True, ticks=6),
    Rules("restarts", restarts=1, ticks=5),
    Rules("two routers", routers=2, ticks=6, requests=2),
    Rules("two routers, silent monitor", routers=2, is_silent=True, lease=3.0),
)
"""Larger ones are in tests/faults."""

ONE = Rules("one router")


@pytest.mark.parametrize("rules", WORLDS, ids=lambda rules: rules.name)
def test_marks_hold_their_promises(rules: Rules) -> None:
    states = Explorer(rules).run()
    print(f"{rules.name}: {states} states")
    assert states > 100


@pytest.mark.parametrize(
    ("fresh", "rules", "caught"),
    [
        (SharedSet, ONE, "L"),
        (partial(SharedSet, uses_dirty_flag=True), Rules("a monitor that speaks on change", on_change_only=True), "L"),
        (ClearOnAnyHealthy, ONE, "S1"),
        (BareLease, ONE, "L1"),
        (NextSample, ONE, "S1"),
    ],
    ids=["publish on change", "dirty flag", "clear on any healthy", "bare lease", "the next sample"],
)
def test_what_others_shipped_is_caught(fresh: type[MarkSheet], rules: Rules, caught: str) -> None:
    with pytest.raises(Broken) as broken:
        Explorer(rules, fresh).run()
    assert str(broken.value).startswith(caught), broken.value


def test_without_fences_a_process_that_is_gone_marks_the_next() -> None:
    with pytest.raises(Broken, match=r"^S2"):
        Explorer(Rules("restarts", routers=2, restarts=1, ticks=5, requests=1), is_fenced=False).run()
