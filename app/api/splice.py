"""Change one value of a JSON object in its bytes, or add one, and nothing else (law: the body is the client's)."""

import re

import orjson

TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]', re.DOTALL)
"""A string, or a mark of structure. Written so that a long string costs no step of the matcher per character."""

WHITESPACE = b" \t\r\n"


def replace_member(body: bytes, member: str, value: str) -> bytes:
    """`body` with the value of every top-level `member` set to the string `value`.

    `body` is a valid JSON object in which each of these values is a string. All occurrences are replaced, whatever
    their spelling, since parsers differ in which of two equal keys counts.
    """
    replacement = orjson.dumps(value)
    pieces: list[bytes] = []
    copied_to = 0
    depth = 0
    is_key = False
    is_wanted = False
    for match in TOKEN.finditer(body):
        token = match.group()
        if token in (b"{", b"["):
            depth += 1
            is_key = depth == 1
        elif token in (b"}", b"]"):
            depth -= 1
        elif depth == 1:
            if token == b",":
                is_key = True
            elif token == b":":
                is_key = False
            elif is_key:
                is_wanted = orjson.loads(token) == member
            elif is_wanted:
                pieces += (body[copied_to : match.start()], replacement)
                copied_to = match.end()
                is_wanted = False
    pieces.append(body[copied_to:])
    return b"".join(pieces)


def set_member(body: bytes, member: str, value: str) -> bytes:
    """`body` with its top-level `member` set to the string `value`: replaced whatever it was, or put first.

    `body` is a valid JSON object in which no top-level key is repeated.
    """
    replacement = orjson.dumps(value)
    depth = 0
    is_key = False
    start = -1
    for match in TOKEN.finditer(body):
        token = match.group()
        if token in (b"{", b"["):
            depth += 1
            is_key = is_key or depth == 1
        elif depth == 1 and start >= 0 and token in (b",", b"}"):
            return body[:start] + replacement + body[_end_of_value(body, start, match.start()) :]
        elif token in (b"}", b"]"):
            depth -= 1
        elif depth == 1:
            if token == b",":
                is_key = True
            elif token == b":":
                is_key = False
            elif is_key and start < 0 and orjson.loads(token) == member:
                start = _start_of_value(body, match.end())
    return insert_member(body, member, value)


def insert_member(body: bytes, member: str, value: str) -> bytes:
    """`body`, a JSON object that has no top-level `member`, with it put first; nothing else is looked at."""
    brace = body.index(b"{") + 1
    rest = brace
    while body[rest] in WHITESPACE:
        rest += 1
    is_empty = body[rest : rest + 1] == b"}"
    return body[:brace] + orjson.dumps(member) + b":" + orjson.dumps(value) + (b"" if is_empty else b",") + body[brace:]


def _start_of_value(body: bytes, end_of_key: int) -> int:
    rest = body.index(b":", end_of_key) + 1
    while body[rest] in WHITESPACE:
        rest += 1
    return rest


def _end_of_value(body: bytes, start: int, separator: int) -> int:
    return start + len(body[start:separator].rstrip(WHITESPACE))
