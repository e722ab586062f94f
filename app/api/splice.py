"""Change one value of a JSON object in its bytes, or add one, and nothing else (law: the body is the client's)."""

import orjson

from app.api.spans import GAP, members


def set_member(body: bytes, member: str, value: str) -> bytes:
    """`body` with its top-level `member` set to the string `value`: replaced whatever it was, or put first.

    `body` is a valid JSON object in which no top-level key is repeated.
    """
    for key, start, end in members(body):
        if key == member:
            return body[:start] + orjson.dumps(value) + body[end:]
    return insert_member(body, member, value)


def insert_member(body: bytes, member: str, value: str) -> bytes:
    """`body`, a JSON object that has no top-level `member`, with it put first; nothing else is looked at."""
    brace = body.index(b"{") + 1
    found = GAP.match(body, brace)
    assert found is not None, "it matches nothing too"
    is_empty = body[found.end() : found.end() + 1] == b"}"
    return body[:brace] + orjson.dumps(member) + b":" + orjson.dumps(value) + (b"" if is_empty else b",") + body[brace:]
