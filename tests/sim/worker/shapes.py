"""Exchanges with a vLLM out of tests/sim/data/vllm, and how the answer of a simulated worker differs from one.

What must be the same: status, the names and the order of headers with the kind of each value, JSON keys in order with
the type of each value, events by name and shape, sizes of binary bodies with the header that describes them, and the
whole text of refusals. Texts, numbers and ids may differ.
"""

import base64
import json
import re
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, NamedTuple

import httpx

DATA = Path(__file__).parents[1] / "data" / "vllm"
CAPTURED = DATA / "captured"
RECORDED = DATA / "frontend"
SIMULATED = ("x-warmset-simulated", "true")
# The bytes of a token; there are tokens of none.
BYTES = "bytes"
# In lists under these keys, dicts have tokens for keys, which differ between tokenizers.
BY_TOKEN = ("top_logprobs", "prompt_logprobs")


class Answer(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    content: bytes

    @classmethod
    def of(cls, response: httpx.Response, content: bytes | None = None) -> "Answer":
        """`content` is what was read of a stream."""
        raw = [(name.decode().lower(), value.decode()) for name, value in response.headers.raw]
        return cls(response.status_code, raw, response.content if content is None else content)


def load(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{kind}.jsonl").read_text().split("\n") if line]


def send(url: str, exchange: dict[str, Any]) -> Answer:
    body = None if exchange["body"] is None else filled(exchange["body"])
    return Answer.of(
        httpx.request(exchange["method"], url + exchange["path"], headers=exchange["headers"], content=body)
    )


def filled(body: str) -> str:
    """With what the data leave out for its length: `<word x 900>`, `"<ids x 300>"`, `"<texts x 200>"`."""
    body = re.sub(r"<word x (\d+)>", lambda found: "word " * int(found[1]), body)
    body = re.sub(r'"<ids x (\d+)>"', lambda found: json.dumps([10] * int(found[1])), body)
    return re.sub(r'"<texts x (\d+)>"', lambda found: json.dumps(["some text"] * int(found[1])), body)


def differences(exchange: dict[str, Any], answer: Answer, *, worded: bool = True, simulated: bool = True) -> list[str]:
    """What is not as in the exchange; empty for an answer that imitates it.

    `worded`: refusals have the same text, not only the same kind. `simulated`: the answer says that it is.
    """
    if answer.status != exchange["status"]:
        return [f"status {answer.status}, not {exchange['status']}: {answer.content[:500]!r}"]
    found = _headers(exchange, answer, simulated=simulated)
    if "base64" in exchange:
        expected = len(base64.b64decode(exchange["base64"]))
        return found if len(answer.content) == expected else [*found, f"{len(answer.content)} bytes, not {expected}"]
    if "text" not in exchange:
        return found
    pair = (exchange["text"], answer.content.decode())
    if dict(exchange["answer_headers"]).get("content-type", "").startswith("text/event-stream"):
        expected, actual = (by_choice(text) for text in pair)
    elif not exchange["text"]:
        expected, actual = pair
    else:
        expected, actual = (json.loads(text) for text in pair)
        if exchange["status"] < 400:
            expected, actual = shape(expected), shape(actual)
        elif not worded:
            for told in (expected, actual):
                told["error"]["message"] = ""
    return found if expected == actual else [*found, f"answer: {actual}\n     not: {expected}"]


def shape(value: Any, key: str = "") -> Any:
    """Keys in order, and types; a list is the different shapes of its items, in the order of appearance."""
    if isinstance(value, dict):
        return {"keys": [[name, shape(item, name)] for name, item in value.items()]}
    if isinstance(value, list):
        shapes: list[Any] = ["int"] if key == BYTES else []
        for item in value:
            by_token = key in BY_TOKEN and isinstance(item, dict) and "logprob" not in item
            found = {"by token": shape(list(item.values()))} if by_token else shape(item)
            if found not in shapes:
                shapes.append(found)
        return {"items": shapes}
    return type(value).__name__


def by_choice(text: str) -> dict[Any, list[Any]]:
    """The events of a stream as (name, shape of the data), apart for each choice, since those overtake each other;
    under "order", where the events of choices stand among the others.

    Without repeats: a busy machine may deliver two tokens in one chunk, as vLLM does too.
    """
    found: dict[Any, list[Any]] = {"order": []}
    for block in text.strip().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n"))
        data = lines["data"] if lines["data"] == "[DONE]" else json.loads(lines["data"])
        choices = data.get("choices") if isinstance(data, dict) else None
        event = (lines.get("event"), data if data == "[DONE]" else shape(data))
        for place, item in ((choices[0]["index"] if choices else None, event), ("order", bool(choices))):
            own = found.setdefault(place, [])
            if not own or own[-1] != item:
                own.append(item)
    return found


def _headers(exchange: dict[str, Any], answer: Answer, *, simulated: bool) -> list[str]:
    expected = [(name, value) for name, value in exchange["answer_headers"]]
    if not expected:  # some captures kept none
        return []
    if (SIMULATED in answer.headers) is not simulated:
        return ["not marked as simulated" if simulated else "marked as simulated"]
    actual = [header for header in answer.headers if header != SIMULATED]
    if [name for name, _ in actual] != [name for name, _ in expected]:
        return [f"headers {[name for name, _ in actual]}, not {[name for name, _ in expected]}"]
    return [
        f"header {name}: {value!r}, not as {other!r}"
        for (name, value), (_, other) in zip(actual, expected, strict=True)
        if not _alike(name, value, other, exchange, answer)
    ]


def _alike(name: str, value: str, other: str, exchange: dict[str, Any], answer: Answer) -> bool:
    if name == "date":
        return parsedate_to_datetime(value).tzinfo is not None
    if name == "content-length":
        return int(value) == len(answer.content)
    if name == "x-request-id":
        sent = exchange["headers"].get("x-request-id")
        return value == other if sent else re.fullmatch("[0-9a-f]{32}", value) is not None
    if name == "metadata":
        layout, expected = json.loads(value), json.loads(other)
        kept = [0, -1] if len(layout["data"]) > 10 else range(len(layout["data"]))
        return shape(layout) == shape(expected) and [layout["data"][at] for at in kept] == expected["data"]
    return value == other
