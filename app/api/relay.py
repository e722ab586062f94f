"""Watches a stream of server-sent events go by: where it may be cut, when tokens came, what it used.

It reads and never changes. What it keeps of a stream is bounded: the first event and the last pieces.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

FIRST_EVENT_MAX = 64 * 1024
LAST_EVENTS_MAX = 4 * 1024
HELD_MAX = 64 * 1024

EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")

FIELD = re.compile(rb"[\n\r][^:\n\r]")
"""A line that is no comment."""

PROMPT = re.compile(rb'"(?:prompt|input)_tokens"\s*:\s*(\d{1,12})')
COMPLETION = re.compile(rb'"(?:completion|output)_tokens"\s*:\s*(\d{1,12})')
CACHED = re.compile(rb'"(?:cached_tokens|cache_read_input_tokens)"\s*:\s*(\d{1,12})')


class Usage(NamedTuple):
    """Tokens as the engine counted them; None where it did not say."""

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None


def usage_of(tail: bytes) -> Usage:
    """Usage from the last bytes of an answer.

    A text of the model cannot forge it: inside a JSON string its quotes are escaped, so `"usage"` does not occur there.
    """
    start = tail.rfind(b'"usage"')
    if start < 0:
        return Usage()
    tail = tail[start:]
    prompt, completion, cached = PROMPT.search(tail), COMPLETION.search(tail), CACHED.search(tail)
    return Usage(
        int(prompt[1]) if prompt else None,
        int(completion[1]) if completion else None,
        int(cached[1]) if cached else None,
    )


class EventStream:
    """Observer of one stream.

    clock: monotonic seconds. gap_bounds: upper bounds, in seconds, of the classes in which gaps are counted.
    """

    __slots__ = (
        "_clock",
        "_end",
        "_first",
        "_gap_bounds",
        "_held",
        "_is_first_whole",
        "_is_half_sent",
        "_last",
        "_last_at",
        "events",
        "first_at",
        "gap_counts",
        "gap_sum_s",
    )

    def __init__(self, clock: Callable[[], float], gap_bounds: Sequence[float]) -> None:
        self._clock = clock
        self._gap_bounds = gap_bounds
        self._first = b""
        self._is_first_whole = False
        self._last = b""
        self._last_at = 0.0
        self._end = b"\n\n"
        self._held = b""
        self._is_half_sent = False
        self.first_at: float | None = None
        self.events = 0
        self.gap_counts = [0] * (len(gap_bounds) + 1)
        """Gaps between events by class, the last class being all above the last bound. Events of one piece share the
        gap before it evenly, since nothing tells when each was made."""
        self.gap_sum_s = 0.0

    def whole_events(self, piece: bytes) -> bytes:
        """What of the stream may go on now: everything up to the last whole event.

        Half an event is of no use to a client, and once it is sent nothing can follow it but its other half: an error
        event would become part of it. A half of more than HELD_MAX goes on as it came, and so does a comment.
        """
        if self._held:
            piece = self._held + piece
            self._held = b""
        if piece.endswith(EVENT_ENDS):
            self._is_half_sent = False
            return piece
        end = max((piece.rfind(mark) + len(mark) for mark in EVENT_ENDS if mark in piece), default=0)
        half = piece[end:]
        if self._is_half_sent and not end:
            return piece  # nothing is won by holding the rest of it
        if len(half) > HELD_MAX:
            self._is_half_sent = True
            return piece
        self._is_half_sent = False
        if half[:1] == b":" and half[-1:] in (b"\n", b"\r") and not FIELD.search(half):
            return piece
        self._held = half
        return piece[:end]

    def rest(self) -> bytes:
        """What was held back, for a stream that ended in the middle of an event by itself."""
        held, self._held = self._held, b""
        return held

    def saw(self, piece: bytes) -> None:
        """A piece, just as it is passed on."""
        now = self._clock()
        events = piece.count(b"\n\n") or piece.count(b"\r\n\r\n")
        if self.first_at is None:
            self.first_at = now
        elif events:
            gap = now - self._last_at
            self.gap_counts[bisect_left(self._gap_bounds, gap / events)] += events
            self.gap_sum_s += gap
        if events:
            self._last_at = now
            self.events += events
        if not self._is_first_whole:
            self._first += piece[: FIRST_EVENT_MAX - len(self._first)]
            self._is_first_whole = bool(events) or len(self._first) == FIRST_EVENT_MAX
        size = len(piece)
        self._last = piece if size >= LAST_EVENTS_MAX else self._last[size - LAST_EVENTS_MAX :] + piece
        self._end = piece[-4:] if size >= 4 else (self._end + piece)[-4:]

    @property
    def is_between_events(self) -> bool:
        """Whether an event of ours may follow as it is; else the one under way must be ended with a blank line."""
        return self._end.endswith(EVENT_ENDS)

    @property
    def first_event(self) -> bytes:
        return self._first.split(b"\n\n", 1)[0]

    @property
    def last_events(self) -> bytes:
        """The last bytes of the stream, LAST_EVENTS_MAX or a whole piece."""
        return self._last
