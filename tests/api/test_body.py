"""One meaning, or none."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.body import MAX_DEPTH, BodyLimits, InvalidBody, count_nodes, parse_body

LIMITS = BodyLimits(max_inputs=4, max_n=3, max_string_chars=50, max_keys=20)


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"a","model":"b"}',
        b'{"model":"a","mod\\u0065l":"b"}',
        b'{"a":{"b":1,"b":1}}',
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":-Infinity}',
        b'{"a":1e999}',
        b'{"a":"\\ud800"}',
        b'{"a":"\\udc00\\ud800"}',
        b'{"a":"\xed\xa0\x80"}',
        b'{"a":"\xff"}',
        b'\xef\xbb\xbf{"a":1}',
        '{"a":1}'.encode("utf-16"),
        '{"a":1}'.encode("utf-16-le"),
        '{"a":1}'.encode("utf-32"),
        b"{'a':1}",
        b'{"a":1,}',
        b'{"a":01}',
        b'{"a":1}{"b":2}',
        b'{"a":1}\x00',
        b'{"a":"\x01"}',
        b"{" * 20_000,
        b'{"a":' + b"[" * 300 + b"]" * 300 + b"}",
        b'{"a":' + b"[" * 100_000,
        b"null",
        b"",
        b'"{}"',
    ],
)
def test_what_parsers_read_differently_or_not_at_all(body: bytes) -> None:
    with pytest.raises(InvalidBody) as refused:
        parse_body(body, LIMITS)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":12345678901234567890123456789,"b":9007199254740993}',
        b' {\n"b" : 1 , "a" : [ ] }\t',
        b'{"a":"\\u0000\\ud83d\\ude00\xf0\x9f\x98\x80"}',
        b'{"a":1e308,"b":-0.0,"c":1E5}',
        b'{"":1}',
        b'{"a":{"x":1},"b":{"x":1}}',
        b'{"a":' + b"[" * 100 + b"]" * 100 + b"}",
    ],
)
def test_what_all_read_alike(body: bytes) -> None:
    assert set(parse_body(body, LIMITS)) == set(json.loads(body))


@pytest.mark.parametrize(
    ("document", "param"),
    [
        ({"n": 4}, "n"),
        ({"n": 10**30}, "n"),
        ({"n": "4"}, "n"),
        ({"n": "1e3"}, "n"),
        ({"n": "nan"}, "n"),
        ({"n": "many"}, "n"),
        ({"data": [{}] * 5}, "data"),
        ({"inputs": [{}] * 5}, "inputs"),
        ({"images": ["x"] * 5}, "images"),
        ({"messages": [{"role": "user", "content": "x" * 51}]}, "messages"),
        ({"messages": [{"content": [{"type": "text", "text": "x" * 51}]}]}, "messages"),
        ({"a": [[["x" * 51]]]}, "a"),
        ({"input": ["x"] * 5}, "input"),
        ({"prompt": [[1], [2], [3], [4], [5]]}, "prompt"),
        ({"documents": [{}] * 5}, "documents"),
        ({"prompt": "x" * 51}, "prompt"),
        ({"prompt": ["x", "x" * 51]}, "prompt"),
        ({str(number): 1 for number in range(21)}, None),
    ],
)
def test_limits(document: dict[str, object], param: str | None) -> None:
    with pytest.raises(InvalidBody) as refused:
        parse_body(json.dumps(document).encode(), LIMITS)
    assert refused.value.param == param


@pytest.mark.parametrize(
    "document",
    [
        {"n": 3},
        {"n": "3"},
        {"messages": [{"content": "x"}] * 9},
        {"messages": [{"content": ["x" * 50] * 3}]},
        {"input": ["x" * 50] * 4},
        {"input": []},
        {"prompt": list(range(1000))},
        {"n": True},
        {str(number): 1 for number in range(20)},
    ],
)
def test_within_limits(document: dict[str, object]) -> None:
    assert parse_body(json.dumps(document).encode(), LIMITS) == document


@pytest.mark.parametrize("brackets", [b"[]", b"{}"])
@pytest.mark.parametrize("levels", [MAX_DEPTH, MAX_DEPTH + 1])
def test_depth(levels: int, brackets: bytes) -> None:
    """The parser's own bound, which our words repeat."""
    opening, closing = (b"[", b"]") if brackets == b"[]" else (b'{"a":', b"}")
    body = b'{"a":' + opening * (levels - 1) + brackets + closing * (levels - 1) + b"}"
    if levels == MAX_DEPTH:
        assert parse_body(body, LIMITS)
    else:
        with pytest.raises(InvalidBody, match=f"more than {MAX_DEPTH} levels"):
            parse_body(body, LIMITS)


NODES = BodyLimits(max_nodes=100)


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":[' + b"[" * 150 + b"]" * 150 + b"]}",
        b'{"a":[' + b"[]," * 100 + b"1]}",
        b'{"a":[' + b'{"b":1},' * 50 + b"1]}",
        b'{"a":{' + b",".join(b'"k%d":1' % number for number in range(100)) + b"}}",
        b'{"a":[' + b'"x",' * 100 + b"1]}",
        b'{"a":[' + b'"\\\\",' * 100 + b"1]}",
        b'{"a":[' + b'"\\"",' * 100 + b"1]}",
        b'"' * 1000,
    ],
)
def test_what_would_take_a_parser_long_never_gets_to_one(body: bytes) -> None:
    with pytest.raises(InvalidBody, match="more than 100 objects, lists and texts"):
        parse_body(body, NODES)


@pytest.mark.parametrize(
    "document",
    [
        {"prompt": '[{"a": [1, 2]}]' * 500},
        {"prompt": "\\" * 500 + '"[{' * 500},
        {"prompt": list(range(5000))},
        {"messages": [{"role": "user", "content": "[" * 200}] * 15},
    ],
)
def test_what_stands_in_texts_is_no_node_and_a_number_is_none(document: dict[str, object]) -> None:
    body = json.dumps(document).encode()
    assert parse_body(body, NODES) == document


@given(
    st.recursive(
        st.none() | st.text('a"\\[{:') | st.integers(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text('b"\\]'), inner),
    )
)
def test_nodes_are_counted_as_they_are(value: object) -> None:
    def count(value: object) -> int:
        if isinstance(value, str):
            return 1
        if isinstance(value, list):
            return 1 + sum(map(count, value))
        return 1 + sum(1 + count(member) for member in value.values()) if isinstance(value, dict) else 0

    expected = count(value)
    assert count_nodes(json.dumps(value).encode(), enough=expected) == expected


KEYS = st.sampled_from(["model", "stream", "a", "b", "\u00e9"])


INTEGERS = st.integers(-(2**63), 2**64 - 1)
"""Beyond these our parser reads a number of the other kind, which matters to nobody: the body goes on as it came."""


@given(st.lists(st.tuples(KEYS, INTEGERS), max_size=6), st.booleans())
def test_a_repeated_key_is_always_found(items: list[tuple[str, int]], is_ascii: bool) -> None:
    members = ",".join(f"{json.dumps(key, ensure_ascii=is_ascii)}:{value}" for key, value in items)
    body = ("{" + members + "}").encode()
    keys = [key for key, _ in items]
    if len(set(keys)) == len(keys):
        assert parse_body(body, BodyLimits()) == dict(items)
    else:
        with pytest.raises(InvalidBody, match="twice"):
            parse_body(body, BodyLimits())
