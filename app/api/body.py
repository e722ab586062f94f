"""One meaning of a body for gateway and worker, or none.

Two parsers that read one body differently are how a request is routed as one thing and served as another. So what
JSON parsers disagree about is refused: repeated keys, numbers beyond a double, lone surrogates, other encodings. What
they agree about (big integers, key order, unknown fields) is left as it is; the bytes are never written again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jiter
import orjson

MAX_DEPTH = 200
"""Levels of nesting inside the outermost object. It is jiter's own bound, which cannot be set."""

LISTS = ("input", "prompt", "documents", "texts", "queries", "items", "text_2", "data_2", "stop")
"""Members that may be a batch. A list of numbers is one prompt as token ids, not a batch."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """max_inputs: entries of a batch. max_n: answers to one prompt, each of which takes a place in an engine's batch.
    max_string_chars: of one member at the top level or one entry of a batch. max_keys: at the top level; the longest
    request that OpenAI documents has about 40."""

    max_inputs: int = 2048
    max_n: int = 16
    max_string_chars: int = 16 * 1024 * 1024
    max_keys: int = 256


DEFAULT_LIMITS = BodyLimits()


class InvalidBody(ValueError):
    """Says what is wrong in words for a client, and which member it is (`param`) when it is one."""

    def __init__(self, text: str, param: str | None = None) -> None:
        super().__init__(text)
        self.param = param


def parse_body(body: bytes, limits: BodyLimits) -> Mapping[str, Any]:
    """The body as an object. Raises InvalidBody for what is not one, or not one that everybody reads alike."""
    try:
        # Also refuses NaN, Infinity, 1e999, UTF-16, a byte order mark and lone surrogates.
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidBody(f"not JSON: {error.msg} at byte {error.pos}") from None
    if not isinstance(document, dict):
        raise InvalidBody("the body must be a JSON object")
    try:
        jiter.from_json(body, catch_duplicate_keys=True, cache_mode="none", partial_mode=False)
    except ValueError as error:
        raise InvalidBody(_told(str(error))) from None
    _check(document, limits)
    return document


def _told(error: str) -> str:
    """jiter's error in our words. A repeated key may hold anything, so it is repeated only in part."""
    if error.startswith("Detected duplicate key"):
        key = error.removeprefix("Detected duplicate key ").rpartition(" at line ")[0]
        return f"the key {key[:64]} is there twice, and parsers differ in which one counts"
    if error.startswith("recursion limit"):
        return f"nested more than {MAX_DEPTH} levels deep"
    return "not JSON that every parser reads alike"


def _check(document: Mapping[str, Any], limits: BodyLimits) -> None:
    if len(document) > limits.max_keys:
        raise InvalidBody(f"more than {limits.max_keys} keys at the top level")
    n = document.get("n")
    if isinstance(n, int | float) and n > limits.max_n:  # orjson reads integers beyond 64 bits as floats
        raise InvalidBody(f"'n' may be at most {limits.max_n}", "n")
    for name in LISTS:
        value = document.get(name)
        if not isinstance(value, list) or not value or isinstance(value[0], int):
            continue  # token ids may be as many as a prompt has
        if len(value) > limits.max_inputs:
            raise InvalidBody(f"'{name}' may have at most {limits.max_inputs} entries; send several requests", name)
        for entry in value:
            if isinstance(entry, str) and len(entry) > limits.max_string_chars:
                raise InvalidBody(f"an entry of '{name}' may have at most {limits.max_string_chars} characters", name)
    for name, value in document.items():
        if isinstance(value, str) and len(value) > limits.max_string_chars:
            raise InvalidBody(f"'{name[:64]}' may have at most {limits.max_string_chars} characters", name[:64])
