"""Marks on a clock that the test turns."""

from itertools import permutations, product

import pytest

from app.core.fleet.reasons import MarkKind
from app.core.overload.marks import (
    FOR_EVER,
    IDLE_TRIAL_S,
    LEASES,
    RAMP_FROM,
    RAMP_S,
    STRIKE_HALF_LIFE_S,
    TRIAL_LEASE_S,
    Mark,
    MarkSheet,
    State,
)

OVERLOAD, FAILING, UNREACHABLE = MarkKind.OVERLOAD, MarkKind.FAILING, MarkKind.UNREACHABLE


def rejected(sheet: MarkSheet, now: float, **more: float) -> MarkSheet:
    return sheet.marked(OVERLOAD, now, number=int(now * 10) + 1, **more)  # type: ignore[arg-type]


def test_from_a_mark_back_to_clear_by_time_and_a_trial() -> None:
    sheet = rejected(MarkSheet(), 10.0)
    assert (sheet.state(10.0), sheet.until(10.0), sheet.kinds(10.0)) == (State.MARKED, 11.0, {OVERLOAD})
    assert sheet.changes_at(10.0) == 11.0
    assert sheet.state(11.0) is State.TRIAL
    sheet = sheet.trial_began(11.0)
    assert not sheet.has_token(11.0)
    sheet = sheet.trial_passed(11.5)
    assert (sheet.state(11.5), sheet.changes_at(11.5)) == (State.RAMP, 11.5 + RAMP_S)
    assert sheet.weight(11.5) == RAMP_FROM
    assert sheet.weight(11.5 + RAMP_S / 2) == 0.5
    assert (sheet.state(11.5 + RAMP_S), sheet.changes_at(11.5 + RAMP_S)) == (State.CLEAR, FOR_EVER)


@pytest.mark.parametrize("kind", MarkKind)
def test_each_failed_trial_doubles_the_lease_up_to_the_longest(kind: MarkKind) -> None:
    lease, now, sheet, found = LEASES[kind], 0.0, MarkSheet(), []
    for number in range(12):
        sheet = sheet.trial_returned().marked(kind, now, number=number)
        found.append(sheet.until(now) - now)
        now = sheet.until(now)
        sheet = sheet.trial_began(now)
    assert found[:3] == [lease.first_s, 2 * lease.first_s, 4 * lease.first_s]
    assert found[-1] == lease.longest_s == max(found)


def test_what_was_sent_before_the_mark_is_no_strike() -> None:
    """A hundred requests that are on their way when the first is rejected."""
    sheet = MarkSheet()
    for place in range(100):
        sheet = rejected(sheet, 10.0 + place / 1000)
    assert sheet.until(10.1) == pytest.approx(11.099)
    assert len(sheet.marks) == 1


def test_strikes_fade_with_time() -> None:
    sheet = rejected(MarkSheet(), 0.0)
    for now in (1.0, 3.0):
        sheet = rejected(sheet, now)
    assert sheet.until(3.0) == 7.0, "three in a row"
    soon, later, much_later = 8.0, 8.0 + STRIKE_HALF_LIFE_S, 8.0 + 4 * STRIKE_HALF_LIFE_S
    assert rejected(sheet, soon).until(soon) == soon + 8
    assert rejected(sheet, later).until(later) == later + 2
    assert rejected(sheet, much_later).until(much_later) == much_later + 1


def test_retry_after_is_honoured_within_bounds_and_never_shortens() -> None:
    sheet = rejected(MarkSheet(), 0.0, retry_after_s=7)
    assert sheet.until(0.0) == 7
    assert rejected(sheet, 1.0, retry_after_s=1).until(1.0) == 7, "the later deadline of the two"
    assert rejected(sheet, 1.0, retry_after_s=12).until(1.0) == 13
    assert rejected(MarkSheet(), 0.0, retry_after_s=3600).until(0.0) == LEASES[OVERLOAD].longest_s
    assert rejected(MarkSheet(), 0.0, retry_after_s=0).until(0.0) == LEASES[OVERLOAD].first_s
    assert rejected(MarkSheet(), 0.0, jitter=1.2, retry_after_s=10).until(0.0) == 12


def test_a_healthy_observation_ends_a_mark_only_when_it_is_certainly_newer() -> None:
    sheet = MarkSheet(seq=4, healthy_seq=4)
    sheet = rejected(sheet, 0.0, retry_after_s=30)
    assert sheet.observed(5, 0.5, is_healthy=True).state(0.5) is State.MARKED, "it may have been on its way"
    assert sheet.observed(6, 1.5, is_healthy=False).state(1.5) is State.MARKED
    back = sheet.observed(6, 1.5, is_healthy=True)
    assert back.state(1.5) is State.TRIAL, "an observation gives a trial, not trust"
    assert back.observed(5, 1.6, is_healthy=False) is back, "an older one says nothing"
    assert back.observed(7, 2.5, is_healthy=False).state(2.5) is State.TRIAL, "and no later one takes that back"


def test_failing_requests_are_not_excused_by_what_a_worker_says_of_itself() -> None:
    sheet = MarkSheet().marked(FAILING, 0.0, number=1)
    for seq in range(1, 5):
        sheet = sheet.observed(seq, float(seq), is_healthy=True)
    assert sheet.state(4.0) is State.MARKED
    assert sheet.state(LEASES[FAILING].first_s) is State.TRIAL


def test_without_requests_an_observation_takes_the_place_of_the_trial() -> None:
    sheet = rejected(MarkSheet(), 0.0)
    ended = sheet.until(0.0)
    assert sheet.observed(1, ended + 1, is_healthy=True).state(ended + 1) is State.TRIAL
    assert sheet.observed(1, ended + IDLE_TRIAL_S, is_healthy=False).state(ended + IDLE_TRIAL_S) is State.TRIAL
    assert sheet.observed(1, ended + IDLE_TRIAL_S, is_healthy=True).state(ended + IDLE_TRIAL_S) is State.RAMP
    tried = sheet.trial_began(ended)
    at = ended + IDLE_TRIAL_S
    assert tried.observed(1, at, is_healthy=True).state(at) is State.TRIAL, "one is under way"


def test_the_token_of_a_trial_comes_back_by_itself() -> None:
    sheet = rejected(MarkSheet(), 0.0).trial_began(1.0)
    assert not sheet.has_token(1.0 + TRIAL_LEASE_S - 0.1)
    assert sheet.has_token(1.0 + TRIAL_LEASE_S)
    assert sheet.trial_returned().has_token(1.0)


def test_a_trial_that_passes_does_not_excuse_a_newer_mark() -> None:
    sheet = rejected(rejected(MarkSheet(), 0.0).trial_began(1.0), 1.5).trial_passed(1.6)
    assert sheet.state(1.6) is State.MARKED
    assert sheet.has_token(1.6)


def told(reporter: str, kind: MarkKind, number: int = 1, until: float = 10.0, after_seq: int = 0) -> Mark:
    return Mark(reporter, kind, number, after_seq, until)


def test_anothers_word_counts_for_overload_and_for_the_rest_only_with_a_second() -> None:
    assert MarkSheet().told(told("x", OVERLOAD), 0.0).state(0.0) is State.MARKED
    for kind in (FAILING, UNREACHABLE):
        once = MarkSheet().told(told("x", kind), 0.0)
        assert once.state(0.0) is State.CLEAR
        assert once.told(told("y", kind), 0.0).state(0.0) is State.MARKED
        assert once.marked(kind, 0.0, number=1).state(0.0) is State.MARKED
        ending = once.told(told("y", kind, until=3.0), 0.0)
        assert (ending.changes_at(0.0), ending.state(3.0)) == (3.0, State.TRIAL), "one alone holds nothing up"


def test_equal_facts_in_any_order_and_number_make_equal_sheets() -> None:
    """I9: what is known is a join."""
    facts = [
        lambda sheet: sheet.told(told("x", OVERLOAD, 1, 8.0, 3), 1.0),
        lambda sheet: sheet.told(told("x", OVERLOAD, 2, 5.0, 4), 1.0),
        lambda sheet: sheet.told(told("x", OVERLOAD, 2, 6.0, 4), 1.0),
        lambda sheet: sheet.told(told("y", FAILING, 1, 7.0, 3), 1.0),
        lambda sheet: sheet.told(told("z", FAILING, 9, 9.0, 3), 1.0),
    ]
    moments = [1.0 + half / 2 for half in range(20)]
    found = set()
    for order in permutations(facts):
        for again in range(len(facts)):
            sheet = MarkSheet()
            for fact in (*order, order[again]):
                sheet = fact(sheet)
            found.add((tuple(sheet.state(now) for now in moments), tuple(sheet.until(now) for now in moments)))
    assert len(found) == 1


@pytest.mark.parametrize(("place", "is_healthy"), list(product(range(4), (True, False))))
def test_marks_and_observations_of_one_count_commute(place: int, is_healthy: bool) -> None:
    """I9, between the processes of one gateway, which see the same observations."""
    states = set()
    for when in range(5):
        sheet = MarkSheet()
        for seq in range(1, 5):
            if seq - 1 == when:
                sheet = sheet.told(told("x", OVERLOAD, after_seq=place), 1.0)
            sheet = sheet.observed(seq, 1.0, is_healthy=is_healthy)
        if when == 4:
            sheet = sheet.told(told("x", OVERLOAD, after_seq=place), 1.0)
        states.add(sheet.state(1.0))
    assert len(states) == 1


@pytest.mark.parametrize("kind", MarkKind)
def test_no_mark_outlives_the_longest_lease_without_new_evidence(kind: MarkKind) -> None:
    """I2: with no events at all."""
    sheet = MarkSheet()
    for number in range(40):
        sheet = sheet.marked(kind, float(number), number=number, jitter=1.2, retry_after_s=1e9)
    end = 39 + LEASES[kind].longest_s * 1.2
    assert sheet.state(end - 0.1) is State.MARKED
    assert sheet.state(end) is State.TRIAL
