"""An engine that has work and gets nowhere, told from one that is idle, slow, or does not say."""

import pytest

from app.core.overload.progress import Progress

Seen = tuple[float | None, bool]
"""What it has counted, and whether it has work; a second apart."""


@pytest.mark.parametrize(
    ("seen", "stalled"),
    [
        ([(5, True)], [0]),
        ([(5, True), (5, True), (5, True)], [0, 1, 2]),
        ([(5, True), (6, True), (6, True)], [0, 0, 1]),
        ([(5, True), (5, True), (6, True), (6, True)], [0, 1, 0, 1]),
        ([(5, False), (5, False), (5, True), (5, True)], [0, 0, 1, 2]),
        ([(5, True), (5, False), (5, True)], [0, 0, 1]),
        ([(None, True), (None, True), (None, True)], [0, 0, 0]),
        ([(5, True), (None, True), (5, True), (5, True)], [0, 0, 0, 1]),
        ([(5, True), (0, True), (0, True)], [0, 0, 1]),
    ],
)
def test_for_how_long_it_got_nowhere(seen: list[Seen], stalled: list[float]) -> None:
    progress = Progress()
    found = [progress.sample(counted, float(at), is_busy=busy) for at, (counted, busy) in enumerate(seen)]
    assert found == stalled
