"""What happened -> what it counts as: total, and as the table says."""

import pytest

from app.core.fleet.reasons import Failure, Outcome
from app.core.overload.evidence import OF_FAILURE, OF_OUTCOME, Evidence, of_status


@pytest.mark.parametrize(
    ("statuses", "evidence"),
    [
        ((200, 204, 302), Evidence.SUCCESS),
        ((400, 404, 405, 409, 413, 422, 501), Evidence.NEUTRAL),
        ((401, 403, 407), Evidence.CONFIG),
        ((429, 529), Evidence.OVERLOAD),
        ((408,), Evidence.AMBIGUOUS),
        ((500, 502, 503, 504, 599), Evidence.FAILURE),
    ],
)
def test_statuses(statuses: tuple[int, ...], evidence: Evidence) -> None:
    assert {of_status(status) for status in statuses} == {evidence}


def test_unavailable_until_a_time_is_overload() -> None:
    assert of_status(503, names_a_time=True) is Evidence.OVERLOAD
    assert of_status(503, is_engines_own=True) is Evidence.OVERLOAD
    assert of_status(500, is_engines_own=True) is Evidence.FAILURE
    assert of_status(500, names_a_time=True) is Evidence.FAILURE


def test_every_failure_and_every_end_counts_as_something() -> None:
    assert set(OF_FAILURE) == set(Failure)
    assert set(OF_OUTCOME) == set(Outcome)
