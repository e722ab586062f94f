"""Cut up, answered part by part and joined again, a batch has the answer that the whole has."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.batches import Part, PartAnswer, Unfit, cut, join
from app.api.endpoints import INPUT, PAIRS
from tests.api.batched import JSON_TYPE, OCTETS_TYPE, answer, inputs_of

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(['"', "\\", "],[", '","'])
IDS = st.lists(st.integers(0, 9), min_size=1, max_size=5)
BATCH = st.lists(TEXT, min_size=1, max_size=30) | st.lists(IDS, min_size=1, max_size=30)
ENCODING = st.sampled_from(["float", "base64", "bytes", "bytes_only"])
WRITTEN = st.sampled_from([{}, {"indent": 1}, {"ensure_ascii": False}, {"separators": (",", ":")}])


def answers(parts: list[Part]) -> list[PartAnswer]:
    return [PartAnswer(part.size, 200, *answer(part.body)) for part in parts]


@given(BATCH, ENCODING, st.integers(1, 12), WRITTEN, st.booleans())
def test_the_joined_answer_is_that_of_the_whole(
    batch: list[Any], encoding: str, most: int, written: dict[str, Any], is_last: bool
) -> None:
    document = {"model": "m", "encoding_format": encoding, "user": [1, {"input": ["x", "y"]}]}
    document = document | {"input": batch} if is_last else {"input": batch} | document
    body = json.dumps(document, **written).encode()
    parts = cut(body, document, INPUT, most)
    if len(batch) <= most:
        assert not parts
        return
    sizes = [part.size for part in parts]
    assert max(sizes) <= most
    assert max(sizes) - min(sizes) <= 1
    assert [each for part in parts for each in json.loads(part.body)["input"]] == batch
    assert all(json.loads(part.body) | {"input": 0} == document | {"input": 0} for part in parts)
    headers, joined = join(answers(parts))
    assert joined == answer(body)[1]
    assert dict(headers) == dict(answer(body)[0])


@given(st.lists(TEXT, min_size=2, max_size=20), st.booleans(), st.integers(1, 6), st.sampled_from(PAIRS))
def test_pairs_are_cut_in_step(texts: list[str], is_broadcast: bool, most: int, names: tuple[str, str]) -> None:
    queries: Any = "one" if is_broadcast else [text[::-1] for text in texts]
    document = {names[0]: queries, "model": "m", names[1]: texts}
    parts = [json.loads(part.body) for part in cut(json.dumps(document).encode(), document, PAIRS, most)]
    if len(texts) <= most:
        assert not parts
        return
    assert [text for part in parts for text in part[names[1]]] == texts
    assert all(part[names[0]] == queries for part in parts) or not is_broadcast
    pairs = [pair for part in parts for pair in inputs_of({"queries": part[names[0]], "documents": part[names[1]]})]
    assert pairs == inputs_of({"queries": queries, "documents": texts})


@pytest.mark.parametrize(
    "document",
    [
        {"input": "text" * 50},
        {"input": list(range(50))},
        {"input": []},
        {"input": None},
        {"input": {"a": 1}},
        {"messages": ["x"] * 50},
        {"queries": ["x"] * 50},
        {"queries": ["x"] * 50, "documents": ["y"] * 49},
    ],
)
def test_what_is_no_batch_goes_as_it_is(document: dict[str, Any]) -> None:
    assert not cut(json.dumps(document).encode(), document, (*INPUT, *PAIRS), 2)


PARTS = [Part(b'{"input":["a","bb"]}', 2), Part(b'{"input":["ccc"]}', 1)]


def changed(**new: Any) -> bytes:
    whole = json.loads(answer(PARTS[1].body)[1])
    return json.dumps({name: value for name, value in (whole | new).items() if value != "gone"}).encode()


@pytest.mark.parametrize(
    "second",
    [
        PartAnswer(2, 200, [JSON_TYPE], answer(PARTS[1].body)[1]),
        PartAnswer(1, 200, [OCTETS_TYPE], b""),
        PartAnswer(1, 201, [JSON_TYPE], answer(PARTS[1].body)[1]),
        PartAnswer(1, 200, [JSON_TYPE], answer(PARTS[1].body)[1][:-9]),
        PartAnswer(1, 200, [JSON_TYPE], b"no JSON"),
        PartAnswer(1, 200, [JSON_TYPE], b""),
        PartAnswer(1, 200, [JSON_TYPE, (b"content-encoding", b"gzip")], answer(PARTS[1].body)[1]),
        *(PartAnswer(1, 200, [JSON_TYPE], changed(data=data)) for data in ("gone", {}, [1], [{"index": "x"}], [{}])),
        *(PartAnswer(1, 200, [JSON_TYPE], changed(usage=usage)) for usage in ("gone", 7, "x")),
    ],
)
def test_answers_that_do_not_fit_are_told(second: PartAnswer) -> None:
    first = PartAnswer(2, 200, [JSON_TYPE], answer(PARTS[0].body)[1])
    with pytest.raises(Unfit):
        join([first, second])


@pytest.mark.parametrize("metadata", [b"", b"x", b"{}", b'{"data":[],"usage":{}}', b'{"data":[{}],"usage":{}}'])
def test_layouts_that_do_not_fit_are_told(metadata: bytes) -> None:
    document = b'{"input":["a","bb"],"encoding_format":"bytes"}'
    headers, octets = answer(document)
    with pytest.raises(Unfit):
        join(
            [PartAnswer(2, 200, headers, octets), PartAnswer(1, 200, [OCTETS_TYPE, (b"metadata", metadata)], b"x" * 12)]
        )


def test_details_of_usage_are_summed_where_there_are_any() -> None:
    usages = [{"prompt_tokens": 1, "details": None}, {"prompt_tokens": 2, "details": {"cached": 3}}]
    body = b'{"data":[{"index":0}],"usage":%s}'
    whole = [PartAnswer(1, 200, [JSON_TYPE], body % json.dumps(usage).encode()) for usage in usages]
    joined = json.loads(join([*whole, whole[1]])[1])
    assert joined["usage"] == {"prompt_tokens": 5, "details": {"cached": 6}}
