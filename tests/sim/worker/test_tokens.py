"""The toy tokenizer can be undone, and its ids stand for one piece each."""

from hypothesis import given
from hypothesis import strategies as st

from app.sim.worker.tokens import (
    END,
    START,
    VOCABULARY,
    conversation,
    piece_of,
    text_of,
    token_id,
    token_ids,
    tokenize,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXT)
def test_tokens_spell_the_text(text: str) -> None:
    pieces = tokenize(text)
    assert text_of(pieces) == text
    assert all(1 <= len(piece) <= 4 for piece in pieces)


@given(TEXT)
def test_ids_lead_back_to_their_pieces(text: str) -> None:
    pieces = tokenize(text)
    assert [piece_of(number) for number in token_ids(pieces)] == pieces


@given(st.integers(0, VOCABULARY - 1))
def test_every_id_of_the_vocabulary_is_one_token(number: int) -> None:
    assert token_id(piece_of(number)) == number


@given(st.lists(TEXT, min_size=1, max_size=4), TEXT)
def test_a_longer_conversation_begins_with_the_shorter_one(texts: list[str], answer: str) -> None:
    turns = [("user", text) for text in texts]
    before = conversation(turns)
    after = conversation([*turns, ("assistant", answer), ("user", "go on")])
    whole = [*before, *tokenize(answer), END, b"\n", START]
    assert after[: len(whole)] == whole


def test_words_take_about_four_letters_a_token() -> None:
    assert tokenize("hello world, again") == [b"hell", b"o", b" wor", b"ld", b",", b" aga", b"in"]


def test_a_lone_surrogate_does_not_break_it() -> None:
    assert tokenize("\ud800")
