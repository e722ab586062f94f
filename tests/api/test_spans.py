"""Values are where a JSON parser finds them, in whatever way the text is written."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.spans import MAX_DEPTH, NotJson, end_of_value, entries, members

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(['"', "\\", "]", "[1,", "{"])
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4) | st.lists(NUMBERS),
    max_leaves=12,
)
INDENTS = st.sampled_from([None, 0, 3])


@given(st.dictionaries(TEXT, VALUES, max_size=6), INDENTS, st.booleans())
def test_members(document: dict[str, object], indent: int | None, ascii_only: bool) -> None:
    body = json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode()
    assert {key: json.loads(body[start:end]) for key, start, end in members(body)} == document
    assert list(document) == [member.key for member in members(body)]
    assert end_of_value(body + b" ", 0) == len(body)


@given(st.lists(VALUES, max_size=6), INDENTS)
def test_entries(document: list[object], indent: int | None) -> None:
    body = json.dumps(document, indent=indent).encode()
    found = list(entries(body))
    assert [json.loads(body[start:end]) for start, end in found] == document
    assert all(body[start:end] == body[start:end].strip() for start, end in found)


@given(st.binary(max_size=40) | st.text(st.sampled_from('{}[]":,1\\ a'), max_size=40).map(str.encode))
def test_what_is_no_json_is_told_and_ends(body: bytes) -> None:
    for walk in (members, entries):
        try:
            assert sum(1 for _ in walk(body)) <= len(body)
        except NotJson:
            continue


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
def test_depth_is_bounded(opening: bytes) -> None:
    with pytest.raises(NotJson):
        end_of_value(opening * (2 * MAX_DEPTH), 0)
