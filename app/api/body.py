"""One meaning of a body for gateway and worker, or none.

Two parsers that read one body differently are how a request is routed as one thing and served as another. So what
JSON parsers disagree about is refused: repeated keys, numbers beyond a double, lone surrogates, other encodings. What
they agree about (big integers, key order, unknown fields) is left as it is; the bytes are never written again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jiter
import orjson

MAX_DEPTH = 200
"""Levels of nesting inside the outermost object. It is jiter's own bound, which cannot be set."""

LISTS = (
    "input",
    "prompt",
    "documents",
    "texts",
    "inputs",
    "images",
    "queries",
    "items",
    "data",
    "text_2",
    "data_2",
    "stop",
)
"""Members that may be a batch. A list of numbers is one prompt as token ids, not a batch."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """max_inputs: entries of a batch. max_n: answers to one prompt, each of which takes a place in an engine's batch.
    max_string_chars: of any text. max_keys: at the top level; the longest request that OpenAI documents has about 40.
    max_nodes: objects, lists and texts, keys too, at all levels: each costs a parser fifty times the memory of a byte
    and up to some microseconds, in which nobody else is served."""

    max_inputs: int = 2048
    max_n: int = 16
    max_string_chars: int = 16 * 1024 * 1024
    max_keys: int = 256
    max_nodes: int = 100_000


DEFAULT_LIMITS = BodyLimits()


class InvalidBody(ValueError):
    """Says what is wrong in words for a client, and which member it is (`param`) when it is one."""

    def __init__(self, text: str, param: str | None = None) -> None:
        super().__init__(text)
        self.param = param


def parse_body(body: bytes, limits: BodyLimits, batches: Sequence[str] = LISTS) -> Mapping[str, Any]:
    """The body as an object. Raises InvalidBody for what is not one, or not one that everybody reads alike.

    batches: members that may be a batch.
    """
    if len(body) > limits.max_nodes and count_nodes(body, limits.max_nodes) > limits.max_nodes:
        raise InvalidBody(f"more than {limits.max_nodes} objects, lists and texts")
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
    _check(document, limits, batches)
    if len(body) > limits.max_string_chars:
        _check_texts(document, limits.max_string_chars)
    return document


def count_nodes(body: bytes, enough: int) -> int:
    """Objects, lists and texts of JSON, keys too; of what is no JSON some number. Exact unless it is below `enough`.

    It takes the speed of memory and next to no memory, whatever the body holds: only where there are few texts are they
    taken apart, to see which brackets stand in them.
    """
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in body else body
    texts = plain.count(b'"') // 2
    brackets = plain.count(b"[") + plain.count(b"{")
    if texts > enough or texts + brackets <= enough:
        return texts + brackets
    outside = b"".join(plain.split(b'"')[::2])
    return texts + outside.count(b"[") + outside.count(b"{")


def _told(error: str) -> str:
    """jiter's error in our words. A repeated key may hold anything, so it is repeated only in part."""
    if error.startswith("Detected duplicate key"):
        key = error.removeprefix("Detected duplicate key ").rpartition(" at line ")[0]
        return f"the key {key[:64]} is there twice, and parsers differ in which one counts"
    if error.startswith("recursion limit"):
        return f"nested more than {MAX_DEPTH} levels deep"
    return "not JSON that every parser reads alike"


def _check_texts(document: Mapping[str, Any], most: int) -> None:
    for name, member in document.items():
        todo = [member]
        while todo:
            value = todo.pop()
            if isinstance(value, str) and len(value) > most:
                raise InvalidBody(f"a text in '{name[:64]}' may have at most {most} characters", name[:64])
            if isinstance(value, dict):
                todo += value.values()
            elif isinstance(value, list) and value and not isinstance(value[0], int):
                todo += value


def _check(document: Mapping[str, Any], limits: BodyLimits, batches: Sequence[str]) -> None:
    if len(document) > limits.max_keys:
        raise InvalidBody(f"more than {limits.max_keys} keys at the top level")
    n = document.get("n")
    if isinstance(n, str):
        # An engine reads such a text as the number that it spells.
        try:
            n = float(n)
        except ValueError:
            raise InvalidBody("'n' must be a number", "n") from None
    if isinstance(n, int | float) and not n <= limits.max_n:  # orjson reads integers beyond 64 bits as floats
        raise InvalidBody(f"'n' may be at most {limits.max_n}", "n")
    for name in batches:
        value = document.get(name)
        if not isinstance(value, list) or not value or isinstance(value[0], int):
            continue  # token ids may be as many as a prompt has
        if len(value) > limits.max_inputs:
            raise InvalidBody(f"'{name}' may have at most {limits.max_inputs} entries; send several requests", name)
