"""The gateway's own overload: up at once, down after a while, and never everybody refused."""

import pytest

from app.core.fleet.priority import Priority
from app.core.overload.pressure import BODIES, CALM_S, LAG_S, MEMORY, SHED_SHARE, Level, Pressure


@pytest.mark.parametrize(
    ("lag", "level"), [(0.0, Level.CALM), (0.24, Level.CALM), (0.25, Level.GUARDED), (1.0, Level.SHEDDING)]
)
def test_a_signal_makes_a_level_at_once(lag: float, level: Level) -> None:
    pressure = Pressure()
    assert pressure.saw("lag", lag, LAG_S, 0.0) is (level is not Level.CALM)
    assert pressure.level is level


def test_it_falls_step_by_step_when_all_are_below_for_a_while() -> None:
    pressure = Pressure()
    pressure.saw("lag", 2.0, LAG_S, 0.0)
    pressure.saw("memory", 0.9, MEMORY, 0.0)
    assert (pressure.level, pressure.loudest) == (Level.SHEDDING, ["lag"])
    assert not pressure.saw("lag", 0.0, LAG_S, CALM_S - 0.1), "not yet"
    assert pressure.saw("lag", 0.0, LAG_S, CALM_S)
    assert (pressure.level, pressure.loudest) == (Level.GUARDED, ["memory"])
    pressure.saw("memory", 0.5, MEMORY, 3.0)
    pressure.saw("bodies", 0.1, BODIES, 3.0 + CALM_S - 0.1 - 1.0)
    assert pressure.saw("bodies", 0.1, BODIES, 3.0 + CALM_S)
    assert pressure.level is Level.CALM


def test_one_that_is_loud_now_and_then_keeps_the_level() -> None:
    pressure = Pressure()
    for turn in range(20):
        pressure.saw("lag", 1.5 if turn % 4 == 0 else 0.0, LAG_S, 0.4 * turn)
        assert pressure.level is Level.SHEDDING


@pytest.mark.parametrize(
    ("level", "refused"),
    [
        (Level.CALM, {}),
        (Level.GUARDED, {Priority.LOW: 1.0}),
        (Level.SHEDDING, {Priority.LOW: 1.0, Priority.NORMAL: SHED_SHARE, Priority.HIGH: SHED_SHARE}),
    ],
)
def test_who_is_refused(level: Level, refused: dict[Priority, float]) -> None:
    pressure = Pressure()
    pressure.level = level
    for priority in Priority:
        share = sum(pressure.refuses(priority, draw / 100) for draw in range(100)) / 100
        assert share == pytest.approx(refused.get(priority, 0.0))
