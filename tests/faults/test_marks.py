"""The larger worlds of the explorer, see tests/core/overload."""

import pytest

from tests.core.overload.explorer import Explorer, Rules

WORLDS = (
    Rules("one router, long", ticks=10, turns=3),
    Rules("restarts", restarts=2, ticks=6),
    Rules("two routers, each with its own count", routers=2, ticks=6, requests=2, shares_count=False),
    Rules("two routers, restarts", routers=2, ticks=5, requests=2, restarts=1),
    Rules("two routers, reordered and repeated", routers=2, ticks=4, requests=2, may_reorder=True, may_repeat=True),
    Rules("three routers", routers=3, ticks=4, requests=2),
)


@pytest.mark.parametrize("rules", WORLDS, ids=lambda rules: rules.name)
def test_marks_hold_their_promises(rules: Rules) -> None:
    states = Explorer(rules).run()
    print(f"{rules.name}: {states} states")
    assert states > 1000
