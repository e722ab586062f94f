"""The comparison itself: what differs in shape is found, what may differ is not."""

from typing import Any

import pytest

from tests.sim.worker.shapes import SIMULATED, Answer, differences

HEADERS = [("date", "Tue, 01 Dec 2026 06:20:00 GMT"), ("server", "uvicorn"), ("content-type", "application/json")]
STREAM = [*HEADERS[:2], ("content-type", "text/event-stream; charset=utf-8")]
WHOLE = '{"id":"a","usage":{"n":1},"data":[{"x":1.5},{"x":2.5}],"none":null}'
EVENTS = 'event: one\ndata: {"a":1}\n\nevent: two\ndata: {"b":null}\n\ndata: [DONE]\n\n'


def exchange(text: str, headers: list[tuple[str, str]], status: int = 200) -> dict[str, Any]:
    return {"status": status, "headers": {}, "answer_headers": headers, "text": text}


def answer(text: str, headers: list[tuple[str, str]], status: int = 200) -> Answer:
    return Answer(status, [*headers, SIMULATED], text.encode())


@pytest.mark.parametrize(
    "text",
    [WHOLE, WHOLE.replace("1.5", "7.5").replace('"a"', '"b"'), WHOLE.replace(',{"x":2.5}', "")],
    ids=["same", "other values", "fewer items"],
)
def test_values_may_differ(text: str) -> None:
    assert not differences(exchange(WHOLE, HEADERS), answer(text, HEADERS))


@pytest.mark.parametrize(
    "text",
    [
        WHOLE.replace("null", "0"),
        WHOLE.replace("1.5", "1"),
        WHOLE.replace('"none"', '"nothing"'),
        WHOLE.replace('"x":2.5', '"x":2.5,"y":1'),
        WHOLE.replace('"id":"a",', "").replace("null", 'null,"id":"a"'),
    ],
    ids=["type of null", "kind of number", "name", "one item", "order"],
)
def test_shapes_may_not(text: str) -> None:
    assert differences(exchange(WHOLE, HEADERS), answer(text, HEADERS))


@pytest.mark.parametrize(
    "headers",
    [
        HEADERS[1:],
        HEADERS[::-1],
        [*HEADERS, ("vary", "Origin")],
        [*HEADERS[:2], ("content-type", "text/plain")],
    ],
    ids=["missing", "order", "more", "value"],
)
def test_headers_may_not(headers: list[tuple[str, str]]) -> None:
    assert differences(exchange(WHOLE, HEADERS), answer(WHOLE, headers))


def test_an_answer_says_that_it_is_simulated_or_is_not() -> None:
    unmarked = answer(WHOLE, HEADERS)._replace(headers=HEADERS)
    assert differences(exchange(WHOLE, HEADERS), unmarked)
    assert not differences(exchange(WHOLE, HEADERS), unmarked, simulated=False)


def test_refusals_are_the_same_to_the_letter() -> None:
    text = '{"error":{"message":"no","type":"a","param":null,"code":400}}'
    refused = exchange(text, HEADERS, 400)
    assert not differences(refused, answer(text, HEADERS, 400))
    assert differences(refused, answer(text, HEADERS, 404))
    reworded = answer(text.replace("no", "never"), HEADERS, 400)
    assert differences(refused, reworded)
    assert not differences(refused, reworded, worded=False)
    assert differences(refused, answer(text.replace('"a"', '"b"'), HEADERS, 400), worded=False)


@pytest.mark.parametrize(
    "text",
    [
        EVENTS.replace("event: one", "event: other"),
        EVENTS.replace("data: [DONE]\n\n", ""),
        EVENTS.replace('"b":null', '"b":1'),
        "\n\n".join(EVENTS.split("\n\n")[i] for i in (1, 0, 2)),
    ],
    ids=["name", "end", "data", "order"],
)
def test_streams_have_the_same_events(text: str) -> None:
    assert not differences(exchange(EVENTS, STREAM), answer(EVENTS.replace(":1}", ":2}"), STREAM))
    assert differences(exchange(EVENTS, STREAM), answer(text, STREAM))


def test_choices_overtake_each_other_but_not_the_usage() -> None:
    first, second, usage = (
        f'data: {{"choices":{choices}}}\n\n' for choices in ('[{"index":0}]', '[{"index":1}]', "[]")
    )
    stream = exchange(first + second + first + usage, STREAM)
    assert not differences(stream, answer(first + second + first + second + usage, STREAM))
    assert differences(stream, answer(first + usage + second + usage, STREAM))
    assert differences(stream, answer(first + usage, STREAM))
