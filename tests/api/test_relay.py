"""The observer sees the same, however a stream is cut."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from app.api.relay import FIRST_EVENT_MAX, LAST_EVENTS_MAX, EventStream, usage_of

BOUNDS = (0.5, 1.5)


def watch(*pieces: bytes, step_s: float = 1.0) -> EventStream:
    times = iter(place * step_s for place in range(1000))
    stream = EventStream(lambda: next(times), BOUNDS)
    for piece in pieces:
        stream.saw(piece)
    return stream


USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}\n\n'
WHOLE = (
    b'data: {"a":1}\n\n: ping\n\ndata: {"b":"\\"usage\\":{\\"prompt_tokens\\":666}"}\n\n' + USAGE + b"data: [DONE]\n\n"
)


@given(st.lists(st.integers(1, len(WHOLE) - 1), unique=True, max_size=8).map(sorted))
def test_cuts_do_not_matter_for_usage_and_place(cuts: list[int]) -> None:
    edges = [0, *cuts, len(WHOLE)]
    stream = watch(*(WHOLE[start:end] for start, end in itertools.pairwise(edges)))
    assert stream.is_between_events
    assert usage_of(stream.last_events)[:2] == (7, 2)
    assert stream.first_event.startswith(b'data: {"a":1}')


def test_where_an_event_of_ours_may_follow() -> None:
    assert watch().is_between_events
    assert watch(b"data: 1\n\n").is_between_events
    assert watch(b"data: 1\r\n\r\n").is_between_events
    assert watch(b"data: 1\r", b"\n\r\n").is_between_events
    assert watch(b"data: 1\n", b"\n").is_between_events
    assert not watch(b"data: 1\n").is_between_events
    assert not watch(b"data: 1\n\ndata").is_between_events


def test_gaps_are_counted_per_event_and_sum_to_the_time_between_first_and_last() -> None:
    stream = watch(b"data: 1\n\n", b"data: 2\n\n", b"data: 3\n\ndata: 4\n\ndata: 5\n\n")
    assert stream.events == 5
    assert sum(stream.gap_counts) == 4
    assert stream.gap_counts == [3, 1, 0], "one gap of 1 s, and 1 s shared by three events"
    assert stream.gap_sum_s == 2.0


def test_what_is_kept_is_bounded() -> None:
    stream = watch(*[b"x" * 10_000] * 50)
    assert len(stream.first_event) <= FIRST_EVENT_MAX
    assert len(stream.last_events) <= max(LAST_EVENTS_MAX, 10_000)


def test_usage_of_other_dialects() -> None:
    responses = b'"usage":{"input_tokens":13,"input_tokens_details":{"cached_tokens":4},"output_tokens":3}'
    assert usage_of(responses) == (13, 3, 4)
    messages = b'"usage":{"input_tokens":13,"output_tokens":3,"cache_read_input_tokens":8}'
    assert usage_of(messages) == (13, 3, 8)
    assert usage_of(b'"usage":null') == (None, None, None)
    assert usage_of(b"") == (None, None, None)


def test_a_line_without_an_end_costs_no_more_than_is_held_of_any() -> None:
    """100 MiB that never end an event go through in one pass, and nearly none of it stays."""
    stream = EventStream(lambda: 0.0, BOUNDS)
    piece = b"data: " + b"x" * (64 * 1024 - 6)
    passed = 0
    for _ in range(1600):
        out = stream.whole_events(piece)
        passed += len(out)
        if out:
            stream.saw(out)
        kept = (stream._held, stream.first_event, stream.last_events)
        assert all(len(part) <= 2 * len(piece) for part in kept)
    assert passed + len(stream.rest()) == 1600 * len(piece)
    assert not stream.is_between_events
