"""Who of a pool may take requests: the rules as a table."""

import pytest

from app.core.fleet.reasons import MarkKind
from app.core.overload.eligibility import Member, judge
from app.core.overload.health import Health
from app.core.overload.marks import FOR_EVER, MarkSheet

NOW = 100.0


def marked(kind: MarkKind, ago: float = 0.0) -> MarkSheet:
    return MarkSheet().marked(kind, NOW - ago, number=1)


GOOD = Member(True, Health.HEALTHY, True, True, MarkSheet())
KINDS = {
    "good": GOOD,
    "drains": GOOD._replace(is_willing=False),
    "starts": GOOD._replace(health=Health.UNKNOWN, was_healthy=False),
    "sick": GOOD._replace(health=Health.UNHEALTHY, unwell_at=NOW - 2),
    "long_sick": GOOD._replace(health=Health.UNHEALTHY, unwell_at=NOW - 60),
    "gone": GOOD._replace(health=Health.UNHEALTHY, can_connect=False),
    "unreachable": GOOD._replace(sheet=marked(MarkKind.UNREACHABLE)),
    "failing": GOOD._replace(sheet=marked(MarkKind.FAILING)),
    "failed": GOOD._replace(sheet=marked(MarkKind.FAILING, ago=4.0)),
    "overloaded": GOOD._replace(sheet=marked(MarkKind.OVERLOAD)),
    "tried": GOOD._replace(sheet=marked(MarkKind.OVERLOAD, ago=2.0)),
    "tried_for_failing": GOOD._replace(sheet=marked(MarkKind.FAILING, ago=9.0)),
    "stuck": GOOD._replace(is_stuck=True, unwell_at=NOW - 70),
    "forced_stuck": GOOD._replace(is_stuck=True, unwell_at=NOW - 70, is_forced=True),
    "forced_failing": GOOD._replace(sheet=marked(MarkKind.FAILING), is_forced=True),
    "forced_overloaded": GOOD._replace(sheet=marked(MarkKind.OVERLOAD), is_forced=True),
    "forced_sick": GOOD._replace(health=Health.UNHEALTHY, unwell_at=NOW - 2, is_forced=True),
    "forced_starting": GOOD._replace(health=Health.UNKNOWN, was_healthy=False, is_forced=True),
    "busy": GOOD._replace(is_latched=True, latch_ends=NOW + 3),
}


@pytest.mark.parametrize(
    ("members", "eligible", "trials", "said"),
    [
        ("good good", [0, 1], [], ""),
        ("good drains", [0], [], ""),
        ("drains drains", [], [], ""),
        ("", [], [], ""),
        # Suspicion takes out half at most, who was suspected first comes back first, and nobody who is alone.
        ("good sick", [0], [], ""),
        ("good failing", [0], [], ""),
        ("failing", [0], [], "panic"),
        ("good stuck", [0], [], ""),
        ("stuck", [0], [], "panic"),
        ("sick stuck", [1], [], "panic"),
        ("sick", [0], [], "panic"),
        ("failing failed", [1], [], "panic"),
        ("good failing sick", [0, 2], [], "panic"),
        ("good good failing sick", [0, 1], [], ""),
        ("failing failing failing failed", [0, 3], [], "panic"),
        ("failing drains", [0], [], "panic"),
        ("failed sick", [0], [], "panic"),
        ("failed long_sick", [1], [], "panic"),
        ("sick failing", [0], [], "panic"),
        # Who cannot be reached is out whatever the others do, and the last that is asked; so is who only starts.
        ("good gone", [0], [], ""),
        ("good gone gone gone", [0], [], ""),
        ("good unreachable unreachable", [0], [], ""),
        ("good starts", [0], [], ""),
        ("gone unreachable starts", [0, 1, 2], [], "panic"),
        ("gone failing", [1], [], "panic"),
        ("gone drains", [0], [], "panic"),
        # Overload is believed, of all of them too; what only looks so gives way to others.
        ("good overloaded", [0], [], ""),
        ("overloaded overloaded", [], [], "shed"),
        ("overloaded gone", [], [], "shed"),
        ("overloaded starts drains", [], [], "shed"),
        ("overloaded failing", [1], [], "panic"),
        ("good busy", [0], [], ""),
        ("busy busy", [0, 1], [], ""),
        ("busy overloaded", [0], [], ""),
        # An operator's word beats what is held against a worker, and not what it says of itself.
        ("good forced_failing", [0, 1], [], ""),
        ("forced_overloaded overloaded", [0], [], ""),
        ("good forced_sick", [0], [], ""),
        ("good forced_stuck", [0], [], ""),
        ("good forced_starting", [0], [], ""),
        # Trials.
        ("good tried", [0], [1], ""),
        ("tried", [], [0], "shed"),
        ("tried overloaded", [], [0], "shed"),
        ("good tried_for_failing", [0], [1], ""),
        ("tried_for_failing", [0], [], ""),
        ("tried_for_failing gone", [0], [], ""),
        ("tried_for_failing tried", [0], [1], ""),
    ],
)
def test_rules(members: str, eligible: list[int], trials: list[int], said: str) -> None:
    standing = judge([KINDS[name] for name in members.split()], NOW)
    assert (list(standing.eligible), list(standing.trials)) == (eligible, trials)
    assert (standing.panic, standing.shed) == (said == "panic", said == "shed")


def test_says_when_it_may_be_different_by_time_alone() -> None:
    assert judge([GOOD, KINDS["tried"]], NOW).changes_at == FOR_EVER
    assert judge([GOOD, KINDS["overloaded"], KINDS["failing"]], NOW).changes_at == NOW + 1
    assert judge([GOOD, KINDS["busy"], KINDS["failing"]], NOW).changes_at == NOW + 3
