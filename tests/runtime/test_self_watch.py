"""What a serving process sees of itself."""

import logging

import pytest

from app.core.overload.pressure import Level, Pressure
from app.runtime.memory import limit_bytes, resident_bytes
from app.runtime.self_watch import READINGS, SelfWatch


class Rig:
    def __init__(self, most_resident: int | None = 1000) -> None:
        self.now = 0.0
        self.held, self.resident = 0, 0
        self.pressure = Pressure()
        self.watch = SelfWatch(
            self.pressure,
            held=lambda: self.held,
            most_held=1000,
            resident=lambda: self.resident,
            most_resident=most_resident,
            clock=lambda: self.now,
        )


def test_a_loop_that_stood_still_once_is_no_pressure() -> None:
    rig = Rig()
    for lag in (0.0, 0.0, 9.0, 0.0, 0.0, 9.0, 0.0):
        rig.watch.lagged(lag)
    assert rig.pressure.level is Level.CALM


def test_a_loop_that_is_late_again_and_again_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "warmset.pressure")
    rig = Rig()
    for _ in range(READINGS - 1):
        rig.watch.lagged(1.5)
    assert rig.pressure.level is Level.CALM, "too little to tell"
    rig.watch.lagged(1.5)
    assert rig.pressure.level is Level.SHEDDING
    for _ in range(3 * READINGS):
        rig.now += 0.5
        rig.watch.lagged(0.0)
    assert rig.pressure.level is Level.CALM
    assert [(record.level, record.signals) for record in caplog.records] == [  # type: ignore[attr-defined]
        ("shedding", ["lag"]),
        ("calm", []),
    ]


async def test_memory_and_bodies() -> None:
    rig = Rig()
    rig.resident, rig.held = 960, 100
    await rig.watch.look()
    assert (rig.pressure.level, rig.pressure.loudest) == (Level.SHEDDING, ["memory"])
    rig.resident, rig.held = 100, 600
    for rig.now in (5.0, 8.0):
        await rig.watch.look()
    assert (rig.pressure.level, rig.pressure.loudest) == (Level.GUARDED, ["bodies"])


async def test_without_a_limit_memory_is_no_pressure() -> None:
    rig = Rig(most_resident=None)
    rig.resident = 10**12
    await rig.watch.look()
    assert rig.pressure.level is Level.CALM


def test_what_the_system_says() -> None:
    resident = resident_bytes()
    assert resident is None or 10_000_000 < resident < 10**11
    one, two = limit_bytes(1), limit_bytes(2)
    assert (one is None and two is None) or (
        one is not None and two is not None and one // 2 == pytest.approx(two, abs=1)
    )
