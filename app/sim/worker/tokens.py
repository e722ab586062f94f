"""A toy tokenizer: cuts text into pieces of at most four bytes, the same way everywhere, and can be undone.

A token is its piece (bytes). Ids are computed only when somebody asks: a piece's bytes read as a number, offset by its
length, so that no table is needed and every id below `VOCABULARY` stands for exactly one piece. Text is cut without
regard to what stands before it, so the tokens of a conversation begin with the tokens of its first messages.
"""

import re
from collections.abc import Iterable, Sequence

from app.sim.worker.errors import ApiError

START = b"<|im_start|>"
END = b"<|im_end|>"
_SPECIAL = (START, END)

# Words with their leading space, runs of spaces, bytes of other scripts by threes, anything else by itself. A piece of
# four bytes is ASCII, which keeps ids below 2**29.
_PIECES = re.compile(rb" [A-Za-z0-9_]{1,3}|[A-Za-z0-9_]{1,4}| {2,4}|[\x80-\xff]{1,3}|[\x00-\x7f]")
_OFFSETS = (0, 0, 1 << 8, (1 << 8) + (1 << 16), (1 << 8) + (1 << 16) + (1 << 24))
_FIRST_SPECIAL = _OFFSETS[4] + (1 << 28)
VOCABULARY = _FIRST_SPECIAL + len(_SPECIAL)


def tokenize(text: str) -> list[bytes]:
    # A lone surrogate (JSON can carry one) has no UTF-8; it is kept as its three bytes.
    return _PIECES.findall(text.encode("utf-8", "surrogatepass"))


def token_id(piece: bytes) -> int:
    if piece in _SPECIAL:
        return _FIRST_SPECIAL + _SPECIAL.index(piece)
    number = 0
    for byte in piece:
        # Four bytes are ASCII, seven bits each.
        number = number << 7 | byte if len(piece) == 4 else number << 8 | byte
    return _OFFSETS[len(piece)] + number


def piece_of(number: int) -> bytes:
    """The piece of one token id, which must be in the vocabulary."""
    if number >= _FIRST_SPECIAL:
        return _SPECIAL[number - _FIRST_SPECIAL]
    length = next(size for size in (4, 3, 2, 1) if number >= _OFFSETS[size])
    number -= _OFFSETS[length]
    if length == 4:
        return bytes(number >> shift & 0x7F for shift in (21, 14, 7, 0))
    return number.to_bytes(length, "big")


def token_ids(pieces: Iterable[bytes]) -> list[int]:
    return [token_id(piece) for piece in pieces]


def from_ids(numbers: Sequence[object]) -> list[bytes]:
    """Tokens from ids that a client sent; 400 when one is not in the vocabulary."""
    pieces = []
    for number in numbers:
        if not isinstance(number, int) or not 0 <= number < VOCABULARY:
            raise ApiError(400, f"Token id {number} is out of vocabulary")
        pieces.append(piece_of(number))
    return pieces


def text_of(pieces: Iterable[bytes]) -> str:
    return b"".join(pieces).decode("utf-8", "replace")


def conversation(messages: Iterable[tuple[str, str]]) -> list[bytes]:
    """Tokens of (role, text) messages in ChatML, with the opening of the assistant's answer at the end."""
    tokens: list[bytes] = []
    for role, text in messages:
        tokens += [START, *tokenize(role), b"\n", *tokenize(text), END, b"\n"]
    return [*tokens, START, *tokenize("assistant"), b"\n"]
