"""Embeddings, labels and scores: unit length, the same everywhere, closer for texts that share words."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.sim.worker.vectors import cosine, embed, logits, relevance, softmax


@given(st.text(), st.integers(1, 64))
def test_vectors_have_unit_length(text: str, dimension: int) -> None:
    vector = embed(text, dimension)
    assert len(vector) == dimension
    assert cosine(vector, vector) == pytest.approx(1.0, abs=1e-5)
    assert vector == embed(text, dimension)


def test_shared_words_bring_texts_together() -> None:
    card, close, far = (
        embed(text, 384) for text in ("my card was charged twice", "my card was charged", "nice weather")
    )
    assert cosine(card, close) > 0.7
    assert abs(cosine(card, far)) < 0.2


def test_the_label_named_in_the_text_wins() -> None:
    labels = ("billing", "technical", "other")
    values = logits("a question about billing", labels, 384)
    assert values.index(max(values)) == 0
    assert math.fsum(softmax(values)) == pytest.approx(1.0)


def test_relevance_is_a_share() -> None:
    assert 0 < relevance("a", "b", 384) < relevance("what is http", "http is a protocol", 384) < 1
