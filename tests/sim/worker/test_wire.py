"""Every answer that the worker imitates has the keys, types, headers and events of a real vLLM 0.32.0's.

data/wire.json holds requests that were sent to a real vLLM and the shapes of what came back: keys in order with the
type of each value, the whole body for refusals.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "data" / "wire.json").read_text())


def shape(value: Any) -> Any:
    """Keys in order, and types; a list is the different shapes of its items, in the order of appearance."""
    if isinstance(value, dict):
        return {"keys": [[key, shape(item)] for key, item in value.items()]}
    if isinstance(value, list):
        shapes: list[Any] = []
        for item in value:
            if (found := shape(item)) not in shapes:
                shapes.append(found)
        return {"items": shapes}
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, int | float) else "string"


def events(text: str) -> list[Any]:
    """(event name, shape of the data) of a stream."""
    found = []
    for block in text.strip().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n"))
        data = lines["data"]
        found.append([lines.get("event"), data if data == "[DONE]" else shape(json.loads(data))])
    return found


def collapsed(sequence: list[Any]) -> list[Any]:
    """Without repeats: a busy machine may deliver two tokens in one chunk, as vLLM does too."""
    return [item for index, item in enumerate(sequence) if not index or item != sequence[index - 1]]


def by_text(value: Any) -> Any:
    """Dicts whose keys are token texts or ids have other keys here, so only what they hold counts."""
    if not isinstance(value, dict):
        return value
    if "items" in value:
        found = [by_text(item) for item in value["items"]]
        return {"items": [item for index, item in enumerate(found) if item not in found[:index]]}
    items = [[key, by_text(item)] for key, item in value["keys"]]
    if items and not any(key in NAMES for key, _ in items):
        return {"tokens": items[0][1]}
    return {"keys": items}


def names_in(value: Any) -> set[str]:
    if not isinstance(value, dict):
        return set()
    if "keys" in value:
        return {key for key, _ in value["keys"]} | {name for _, item in value["keys"] for name in names_in(item)}
    return {name for item in value["items"] for name in names_in(item)}


# Every key of the wire that is not a token: those of all cases but the two that key by token.
KEYED_BY_TOKEN = ("completions", "completions_prompt_logprobs", "completions_logprob_token_ids")
NAMES = {name for case in CASES if case["name"] not in KEYED_BY_TOKEN for name in names_in(case.get("shape"))} | {
    *("text_offset", "token_logprobs", "tokens", "top_logprobs", "logprob", "rank", "decoded_token"),
}


@pytest.mark.parametrize("case", CASES, ids=[f"{case['server']}-{case['name']}" for case in CASES])
def test_answers_as_vllm_does(case: dict[str, Any], worker_of: Callable[[str], Any]) -> None:
    body = case["body"]
    if body:
        for words in (900, 4000):
            body = body.replace(f"<word x {words}>", "word " * words)
    answer = httpx.request(
        case["method"], worker_of(case["server"]).url + case["path"], headers=case["headers"], content=body
    )

    assert answer.status_code == case["status"], answer.text
    assert answer.headers.pop("x-warmset-simulated") == "true"
    assert sorted(answer.headers) == case["answer_headers"]
    assert answer.headers.get("content-type") == case["content_type"]
    if "exact" in case:
        assert answer.json() == case["exact"]
    if "shape" in case:
        assert by_text(shape(answer.json())) == by_text(case["shape"])
    if "events" in case:
        assert collapsed(events(answer.text)) == collapsed(case["events"])
    if "bytes" in case:
        assert len(answer.content) == case["bytes"]
    if "metadata" in case:
        assert shape(json.loads(answer.headers["metadata"])) == case["metadata"]
