"""Answers: readable, of the asked length, chosen by prompt and seed, and made of the tokenizer's own tokens."""

from hypothesis import given
from hypothesis import strategies as st

from app.sim.worker.text import LONGEST_ANSWER, SHORTEST_ANSWER, Text, answer_key
from app.sim.worker.tokens import text_of, tokenize

TEXT = Text(0)


@given(st.binary(min_size=1, max_size=8), st.integers(1, 400))
def test_an_answer_has_the_asked_length_and_its_text_has_these_very_tokens(key: bytes, tokens: int) -> None:
    answer = TEXT.answer(key, tokens)
    assert len(answer) == tokens
    # All but the last, which may be cut within a word that goes on.
    assert tokenize(text_of(answer))[:-1] == answer[:-1]


@given(st.binary(min_size=1, max_size=8))
def test_it_begins_with_a_sentence_and_ends_by_itself_in_time(key: bytes) -> None:
    assert text_of(TEXT.answer(key, 20))[0].isupper()
    assert SHORTEST_ANSWER <= TEXT.natural_length(key) <= LONGEST_ANSWER


def test_prompt_and_seed_choose_the_answer() -> None:
    keys = [answer_key([b"prompt"], seed, index) for seed in range(3) for index in range(3)]
    assert len({text_of(TEXT.answer(key, 60)) for key in keys}) == 9
    assert Text(0).answer(keys[0], 60) == TEXT.answer(keys[0], 60) != Text(1).answer(keys[0], 60)


def test_an_answer_longer_than_the_whole_text_goes_round() -> None:
    assert len(TEXT.answer(b"key", 100_000)) == 100_000


def test_alternatives_do_not_repeat() -> None:
    others = TEXT.alternatives(b"key", 3, 20)
    assert len(set(others)) == 20
