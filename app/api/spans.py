"""Where the values of a JSON text stand, so that one can be changed, or a list cut, and the rest stay as it is written.

Bytes are walked at the speed of memory wherever they are only numbers, which is what most of an answer of vectors is.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

import orjson

STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
"""Written so that a long string costs no step of the matcher per character."""

NESTED = re.compile(STRING + rb"|[{}\[\]]", re.DOTALL)
SCALAR = re.compile(STRING + rb"|[^\s,\[\]{}\":]+", re.DOTALL)
GAP = re.compile(rb"[ \t\r\n]*")

MAX_DEPTH = 1000
"""More than any body that is let in has; with it no text takes more than so many looks at each of its bytes."""


class NotJson(ValueError):
    """What was walked is not what a JSON parser would take."""


class Member(NamedTuple):
    """One of an object's: its key, and where its value begins and ends."""

    key: str
    start: int
    end: int


def members(body: bytes, at: int = 0) -> Iterator[Member]:
    """The members of the object that begins at `at`, or after the whitespace there. Raises NotJson."""
    at = _past(body, at, b"{")
    while not _is_at(body, at, b"}"):
        found = SCALAR.match(body, at)
        if found is None or not found[0].startswith(b'"'):
            raise NotJson(f"no key at byte {at}")
        start = _past(body, found.end(), b":")
        end = end_of_value(body, start)
        yield Member(_key(found[0]), start, end)
        at = _next(body, end, b"}")


def entries(body: bytes, at: int = 0) -> Iterator[tuple[int, int]]:
    """Where each entry of the list that begins at `at` begins and ends. Raises NotJson."""
    at = _past(body, at, b"[")
    while not _is_at(body, at, b"]"):
        end = end_of_value(body, at)
        yield at, end
        at = _next(body, end, b"]")


def end_of_value(body: bytes, start: int) -> int:
    """Behind the value that begins at `start`. Raises NotJson."""
    if body[start : start + 1] not in (b"{", b"["):
        found = SCALAR.match(body, start)
        if found is None:
            raise NotJson(f"no value at byte {start}")
        return found.end()
    depth, at = 0, start
    while True:
        found = NESTED.search(body, at)
        if found is None or depth > MAX_DEPTH:
            raise NotJson(f"no end of what begins at byte {start}")
        at = found.end()
        mark = found[0]
        if mark == b"[":
            close = body.find(b"]", at)
            if any(body.find(other, at, close) >= 0 for other in (b'"', b"[", b"{")):
                depth += 1
                continue
            at = close + 1  # numbers alone
        elif mark == b"{":
            depth += 1
            continue
        elif mark in (b"]", b"}"):
            depth -= 1
        if not depth:
            return at


def _key(text: bytes) -> str:
    try:
        key: str = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise NotJson(f"no key: {error.msg}") from None
    return key


def _is_at(body: bytes, at: int, mark: bytes) -> bool:
    return body[at : at + 1] == mark


def _past(body: bytes, at: int, mark: bytes) -> int:
    """Behind `mark`, which comes next, and the whitespace on both sides of it."""
    at = _gap(body, at)
    if not _is_at(body, at, mark):
        raise NotJson(f"no {mark.decode()} at byte {at}")
    return _gap(body, at + 1)


def _next(body: bytes, at: int, end: bytes) -> int:
    """Where the next member or entry begins, or the end of them all stands."""
    at = _gap(body, at)
    return at if _is_at(body, at, end) else _past(body, at, b",")


def _gap(body: bytes, at: int) -> int:
    found = GAP.match(body, at)
    assert found is not None, "it matches nothing too"
    return found.end()
