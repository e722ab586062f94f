"""Bodies are taken and refused as vLLM's validation layer does it, all complaints at once."""

import pytest

from app.sim.worker.errors import ApiError
from app.sim.worker.fields import Fields, choose, parse


@pytest.mark.parametrize(
    ("value", "taken"), [(3, 3), ("3", 3), (3.0, 3), (True, 1), (None, None)], ids=["int", "text", "float", "bool", "-"]
)
def test_whole_numbers_in_any_clothes(value: object, taken: int | None) -> None:
    fields = Fields({"n": value})
    assert fields.integer("n") == taken
    fields.check()


@pytest.mark.parametrize("value", ["x", 1.5, [], {}, float("inf")], ids=str)
def test_what_is_no_whole_number_is_refused(value: object) -> None:
    fields = Fields({"n": value})
    assert fields.integer("n") is None
    with pytest.raises(ApiError) as caught:
        fields.check()
    assert (caught.value.status, caught.value.param, caught.value.kind) == (400, "body.n", "Bad Request")


def test_all_complaints_come_together_and_the_first_gives_the_place() -> None:
    fields = Fields({"stream": "perhaps", "temperature": "warm", "model": 3})
    fields.flag("stream")
    fields.number("temperature")
    fields.text("model")
    fields.require("messages")
    with pytest.raises(ApiError, match=r"^4 validation errors:\n") as caught:
        fields.check()
    assert caught.value.param == "body.stream"
    assert caught.value.message.count("\n") == 4


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{", b'{"a":1}x', b"\xff", b'"text"', b"null", b"[" * 100_000], ids=lambda r: r[:6]
)
def test_what_is_not_a_json_object_is_refused(raw: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        Fields(parse(raw)).check()
    assert (caught.value.status, caught.value.kind) == (400, "Bad Request")


def test_the_first_form_that_fits_is_taken() -> None:
    forms = [lambda fields, name=name: (name, fields.require(name), fields.integer("n")) for name in ("a", "b")]
    assert choose({"a": 1, "b": 2}, forms)[0] == "a"
    assert choose({"b": 2}, forms)[0] == "b"
    with pytest.raises(ApiError) as caught:
        choose({"n": "x"}, forms)
    assert caught.value.param == "body.a"
    assert caught.value.message.startswith("4 validation errors:")


def test_of_many_complaints_ten_are_told_and_none_at_full_length() -> None:
    fields = Fields({"ids": ["x" * 5000] * 23})
    assert fields.integers("ids") == []
    with pytest.raises(ApiError) as caught:
        fields.check()
    lines = caught.value.message.split("\n")
    assert (lines[0], lines[-1].strip(), len(lines)) == ("23 validation errors:", "...and 13 more errors", 12)
    assert len(caught.value.message) < 5000


def test_nan_passes_as_it_does_in_vllm() -> None:
    assert Fields(parse(b'{"temperature": NaN}')).number("temperature") != 0
