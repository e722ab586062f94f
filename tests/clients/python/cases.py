"""What the programs for Python share: their arguments, their cases, and how they tell what came of them.

Arguments: the base URLs for the chat and the embedding model. One line of JSON on standard output: case -> result.
"""

import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

CHAT_MODEL, EMBEDDING_MODEL = "tiny", "minilm"
CHAT_URL, EMBEDDING_URL = sys.argv[1:3]
KEY = "unused"
TEXTS = ["my card was charged twice", "the weather is nice", "a"]
QUESTION = "Say something about the sea."
SAMPLING = {"temperature": 0, "max_tokens": 12}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a place",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string", "enum": ["sea", "land"]}},
            "required": ["place"],
            "additionalProperties": False,
        },
    },
}

Cases = list[tuple[str, Callable[[], Any]]]
CASES: Cases = []


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    """Have `function` be the case of its name. What it returns is compared; what it asserts must be so."""
    CASES.append((function.__name__, function))
    return function


def raised(call: Callable[[], Any]) -> dict[str, Any]:
    """The error that a call raises, as its SDK tells it."""
    try:
        value = call()
    except Exception as error:
        body = getattr(error, "body", None)
        code = body.get("code") if isinstance(body, dict) else None
        return {"error": type(error).__name__, "status": getattr(error, "status_code", None), "code": code}
    raise AssertionError(f"no error, but {value!r:.200}")


def main() -> None:
    results: dict[str, Any] = {}
    for name, function in CASES:
        try:
            results[name] = {"result": function()}
        except Exception:
            results[name] = {"failed": traceback.format_exc()[-2000:]}
    print(json.dumps(results))
