"""Embeddings, labels and scores that are a function of the text alone, and closer for texts that share words.

A text is a bag of its words, word pairs and letter triples; each feature is hashed to a place and a sign. Nothing is
learned: "billed" and "charged" are strangers, "charged" and "charge" are not.
"""

import math
import re
from array import array
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise

_WORDS = re.compile(r"\w+")
_WORD, _PAIR, _TRIPLE = 1.0, 0.5, 0.35
# Logits and scores grow with the cosine by this much, so that shared words visibly decide.
_SHARPNESS = 6.0


def embed(text: str, dimension: int, *, activated: bool = True) -> list[float]:
    """A unit vector, or one of any length before activation. Its values are float32 ones, so that every encoding
    carries the same numbers."""
    values = [0.0] * dimension
    words = _WORDS.findall(text.lower())
    for word in words:
        _put(values, word, _WORD)
        padded = f"^{word}$"
        for start in range(len(padded) - 2):
            _put(values, f"3:{padded[start : start + 3]}", _TRIPLE)
    for first, second in pairwise(words):
        _put(values, f"{first} {second}", _PAIR)
    if not any(values):
        _put(values, "no words", _WORD)
    length = math.sqrt(math.fsum(value * value for value in values)) if activated else 1.0
    return array("f", (value / length for value in values)).tolist()


def cosine(first: Sequence[float], second: Sequence[float]) -> float:
    """Of unit vectors."""
    return math.fsum(a * b for a, b in zip(first, second, strict=True))


def logits(text: str, labels: Sequence[str], dimension: int) -> list[float]:
    """One per label, higher where the text shares words with the label's name; a little of the text's own besides."""
    vector = embed(text, dimension)
    scores = []
    for label in labels:
        own = _feature(f"{label}\0{text}")[0] % 1000 / 1000
        scores.append(_SHARPNESS * cosine(vector, embed(label, dimension)) + own)
    return scores


def softmax(values: Sequence[float]) -> list[float]:
    top = max(values)
    raised = [math.exp(value - top) for value in values]
    total = math.fsum(raised)
    return [value / total for value in raised]


def relevance(query: str, document: str, dimension: int, *, activated: bool = True) -> float:
    """What a cross-encoder would say, higher for texts that share words: between 0 and 1, or the logit of that."""
    logit = _SHARPNESS * (cosine(embed(query, dimension), embed(document, dimension)) - 0.5)
    return 1 / (1 + math.exp(-logit)) if activated else logit


@lru_cache(maxsize=65536)
def _feature(name: str) -> tuple[int, bool]:
    number = int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
    return number >> 1, bool(number & 1)


def _put(values: list[float], feature: str, weight: float) -> None:
    number, negative = _feature(feature)
    values[number % len(values)] += -weight if negative else weight
