"""Prompts come as texts or as token ids; what they mean is the same."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from app.sim.worker.errors import ApiError
from app.sim.worker.fields import Fields
from app.sim.worker.prompts import Prompt, prompts_of, read_given
from app.sim.worker.tokens import token_ids, tokenize


@pytest.mark.parametrize(
    ("value", "taken"),
    [
        ("text", "text"),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [1, 2]),
        ([[1, 2], [3]], [[1, 2], [3]]),
        (["1", "2"], ["1", "2"]),
        (["1", 2], [1, 2]),
        ([], []),
        ([[]], [[]]),
    ],
    ids=str,
)
def test_forms_of_a_prompt(value: object, taken: object) -> None:
    fields = Fields({"input": value})
    assert read_given(fields, "input") == taken
    fields.check()


@pytest.mark.parametrize("value", [None, 5, 1.5, {}, ["a", 5], [[1], "a"], [None]], ids=str)
def test_what_is_no_prompt_is_refused(value: object) -> None:
    fields = Fields({"input": value})
    assert read_given(fields, "input") is None
    with pytest.raises(ApiError) as caught:
        fields.check()
    assert (caught.value.param or "").startswith("body.input")


def test_a_cut_keeps_the_side_that_is_asked_for() -> None:
    prompt = Prompt((b"a", b"b", b"c"))
    assert list(prompt.cut(2).tokens) == [b"a", b"b"]
    assert list(prompt.cut(2, left=True).tokens) == [b"b", b"c"]
    assert list(prompt.cut(0).tokens) == list(prompt.cut(0, left=True).tokens) == []
    assert prompt.cut(3).tokens == prompt.cut(9, left=True).tokens == prompt.tokens


def test_ids_spell_the_text() -> None:
    text = "my card was charged twice"
    (prompt,) = prompts_of(token_ids(tokenize(text)))
    assert (prompt.text, prompt.counted) == (text, True)
    assert [prompt.text for prompt in prompts_of([token_ids(tokenize(text)), token_ids(tokenize("b"))])] == [text, "b"]


@pytest.mark.parametrize(
    ("kind", "path", "field", "shown"),
    [
        ("embed", "/v1/embeddings", "input", lambda answer: answer["data"][0]["embedding"]),
        ("embed", "/pooling", "input", lambda answer: answer["data"][0]["data"]),
        ("classify", "/pooling", "input", lambda answer: answer["data"][0]["data"]),
        ("classify", "/classify", "input", lambda answer: answer["data"][0]["probs"]),
        ("generate", "/v1/completions", "prompt", lambda answer: answer["choices"][0]["text"]),
        ("generate", "/generative_scoring", "query", lambda answer: answer["data"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_text_and_its_ids_get_one_answer(
    kind: str, path: str, field: str, shown: Callable[[Any], Any], worker_of: Callable[[str], Any]
) -> None:
    url, text = worker_of(kind).url, "my card was charged twice"
    ids = httpx.post(f"{url}/tokenize", json={"prompt": text}).json()["tokens"]
    more = {"items": ["yes"], "label_token_ids": [10, 20]} if path == "/generative_scoring" else {}
    by_text, by_ids = (httpx.post(url + path, json={field: value, **more}).json() for value in (text, ids))
    assert shown(by_text) == shown(by_ids)
    assert by_text["usage"]["prompt_tokens"] == by_ids["usage"]["prompt_tokens"]


def test_labels_share_what_follows_an_item(worker_of: Callable[[str], Any]) -> None:
    url = f"{worker_of('generate').url}/generative_scoring"
    body = {"query": "Good? ", "items": ["yes", "no"], "label_token_ids": [10, 20]}

    def scores(**fields: Any) -> list[float]:
        return [item["score"] for item in httpx.post(url, json={**body, **fields}).json()["data"]]

    assert scores() == scores()
    assert scores(label_token_ids=[10]) == [1.0, 1.0]
    assert all(0 < score < 1 for score in scores())
    assert all(raw < share for raw, share in zip(scores(apply_softmax=False), scores(), strict=True))
    assert scores(item_first=True) != scores()


def test_counting_tokens_is_what_a_message_would_use(worker_of: Callable[[str], Any]) -> None:
    url = f"{worker_of('generate').url}/v1/messages"
    body = {"model": "tiny", "messages": [{"role": "user", "content": "count me"}], "system": "be brief"}
    usage = httpx.post(url, json={**body, "max_tokens": 1}).json()["usage"]
    counted = httpx.post(f"{url}/count_tokens", json=body).json()["input_tokens"]
    assert counted == sum(value for name, value in usage.items() if name != "output_tokens") > 10
