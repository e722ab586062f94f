"""Change one string value of a JSON object in its bytes, and nothing else (law: the body is the client's)."""

import re

import orjson

TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]', re.DOTALL)
"""A string, or a mark of structure. Written so that a long string costs no step of the matcher per character."""


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
