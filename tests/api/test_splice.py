"""One value changes; every other byte stays."""

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.splice import set_member


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"model":"a"}', b'{"model":"b"}'),
        (b' { "x" : [ {"model":"a"} ] , "model" : "a" } ', b' { "x" : [ {"model":"a"} ] , "model" : "b" } '),
        (b'{"m\\u006fdel":"a"}', b'{"m\\u006fdel":"b"}'),
        (b'{"x":"\\"model\\":\\"a\\"","model":"a"}', b'{"x":"\\"model\\":\\"a\\"","model":"b"}'),
        (b'{"x":"}{][","model":"a\\\\"}', b'{"x":"}{][","model":"b"}'),
        (
            b'{"model":"a","y":1.0e+2,"z":1234567890123456789012}',
            b'{"model":"b","y":1.0e+2,"z":1234567890123456789012}',
        ),
        (b'{"x":"model","y":"model"}', b'{"model":"b","x":"model","y":"model"}'),
    ],
)
def test_examples(body: bytes, expected: bytes) -> None:
    assert set_member(body, "model", "b") == expected


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["model", '"model"', "{", "}", "\\"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.just("model"), inner, max_size=4),
    max_leaves=12,
)


@given(
    st.dictionaries(st.text(max_size=8), VALUES, max_size=6),
    st.text(max_size=12),
    st.text(min_size=1, max_size=12),
    st.booleans(),
    st.integers(0, 6),
)
def test_only_the_member_changes(members: dict[str, object], old: str, new: str, ascii_only: bool, place: int) -> None:
    items = [item for item in members.items() if item[0] != "model"]
    items.insert(min(place, len(items)), ("model", old))
    text = json.dumps(dict(items), ensure_ascii=ascii_only, indent=place % 3 or None)
    try:
        body = text.encode()
        orjson.loads(body)
        orjson.dumps(new)
    except (UnicodeEncodeError, orjson.JSONDecodeError, orjson.JSONEncodeError):
        return  # lone surrogates: no valid request holds them
    spliced = set_member(body, "model", new)
    assert json.loads(spliced) == dict(items) | {"model": new}
    kept = json.dumps(old, ensure_ascii=ascii_only).encode()
    assert len(spliced) == len(body) - len(kept) + len(orjson.dumps(new))


@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=6), VALUES, st.integers(0, 7), st.booleans())
def test_a_member_is_set_and_nothing_else(
    members: dict[str, object], old: object, place: int, ascii_only: bool
) -> None:
    """place 7: it is not there yet."""
    items = [item for item in members.items() if item[0] != "salt"]
    if place < 7:
        items.insert(min(place, len(items)), ("salt", old))
    text = json.dumps(dict(items), ensure_ascii=ascii_only, indent=place % 3 or None)
    try:
        body = text.encode()
        orjson.loads(body)
    except (UnicodeEncodeError, orjson.JSONDecodeError):
        return  # no valid request
    spliced = set_member(body, "salt", "new")
    assert json.loads(spliced) == dict(items) | {"salt": "new"}
    if place < 7:
        marked = json.dumps(dict(items) | {"salt": "new"}, ensure_ascii=ascii_only, indent=place % 3 or None)
        assert spliced == marked.encode(), "what stood around the value stands there still"
    else:
        added = b'"salt":"new"' + (b"," if items else b"")
        assert spliced.replace(added, b"", 1) == body
    assert set_member(spliced, "salt", "new") == spliced
