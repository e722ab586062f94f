"""What the simulated model says: readable sentences without meaning, chosen by the prompt.

One text is made per seed when the worker starts, already cut into tokens; an answer is a stretch of it that begins
with a sentence. So an answer costs one slice, and the same prompt gets the same answer from workers of equal seed.
"""

from collections.abc import Sequence
from hashlib import blake2b
from itertools import islice
from random import Random

from app.sim.worker.tokens import tokenize

SENTENCES = 1500
SHORTEST_ANSWER, LONGEST_ANSWER = 16, 128

# One sentence takes one of each row.
_PARTS = (
    ("The cache", "The router", "A worker", "The queue", "This engine", "A request", "The planner", "One replica"),
    ("keeps", "moves", "serves", "follows", "measures", "shares", "warms", "weighs", "remembers", "returns"),
    ("the prefix", "the longest block", "a quiet node", "the next token", "its own load", "the last answer"),
    ("without a pause", "before the deadline", "in good order", "while others wait", "as the plan says", "once more"),
)


class Text:
    """The worker's whole output text and where its sentences begin."""

    def __init__(self, seed: int) -> None:
        rng = Random(seed)
        self._pieces: list[bytes] = []
        self._starts: list[int] = []
        for _ in range(SENTENCES):
            self._starts.append(len(self._pieces))
            words = [rng.choice(part) for part in _PARTS]
            # Two spaces are a token of their own, so a sentence has the same tokens wherever an answer begins.
            self._pieces += tokenize(f"{' '.join(words)}.  ")

    def answer(self, key: bytes, tokens: int) -> list[bytes]:
        """The `tokens` output tokens for what `key` identifies (prompt, seed, choice)."""
        start = self._starts[_number(key, b"start") % len(self._starts)]
        pieces = self._pieces[start : start + tokens]
        while len(pieces) < tokens:
            pieces += islice(self._pieces, tokens - len(pieces))
        return pieces

    def natural_length(self, key: bytes) -> int:
        """How many tokens the model would say before it stops by itself."""
        return SHORTEST_ANSWER + _number(key, b"length") % (LONGEST_ANSWER - SHORTEST_ANSWER + 1)

    def alternatives(self, key: bytes, position: int, count: int) -> list[bytes]:
        """`count` other tokens that might have stood at `position`, without repeats."""
        at = _number(key, b"other%d" % position)
        found: dict[bytes, None] = {}
        while len(found) < count:
            found[self._pieces[at % len(self._pieces)]] = None
            at += 1
        return list(found)


def logprob(key: bytes, position: int, piece: bytes, rank: int) -> float:
    """A log probability that falls with `rank` (0 is the sampled token) and depends on nothing but its arguments."""
    return -0.05 - 1.25 * rank - (_number(key, b"%d" % position + piece) % 1_000_000) / 1_000_000


def answer_key(tokens: Sequence[bytes], *parts: object) -> bytes:
    """Identifies a prompt together with whatever else should change the answer."""
    digest = blake2b(b"\0".join(tokens), digest_size=16)
    digest.update(repr(parts).encode())
    return digest.digest()


def _number(key: bytes, purpose: bytes) -> int:
    return int.from_bytes(blake2b(key + purpose, digest_size=8).digest(), "big")
