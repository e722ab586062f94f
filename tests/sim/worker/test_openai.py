"""The OpenAI SDK talks to the worker as it does to vLLM."""

from collections.abc import Callable
from typing import Any

import openai
import pytest


@pytest.fixture
def client(worker_of: Callable[[str], Any]) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{worker_of('generate').url}/v1", api_key="none", max_retries=0)


def test_chat_streamed_and_whole_say_the_same(client: openai.OpenAI) -> None:
    asked: Any = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 12}
    whole = client.chat.completions.create(**asked)
    streamed = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in streamed if chunk.choices)
    assert text == whole.choices[0].message.content
    assert [chunk.choices[0].finish_reason for chunk in streamed if chunk.choices][-1] == "length"
    assert whole.usage is not None
    assert streamed[-1].usage is not None
    assert streamed[-1].usage.completion_tokens == whole.usage.completion_tokens == 12
    assert (whole.system_fingerprint or "").startswith("warmset-simulated-")


def test_without_max_tokens_it_stops_by_itself(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "hello"}])
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert 16 <= answer.usage.completion_tokens <= 128


def test_a_stop_word_ends_the_text_before_it(client: openai.OpenAI) -> None:
    asked: Any = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 60}
    text = client.chat.completions.create(**asked).choices[0].message.content or ""
    word = text.split()[4]
    cut = client.chat.completions.create(**asked, stop=[word, "never"]).choices[0]
    assert cut.message.content == text[: text.index(word)]
    assert cut.finish_reason == "stop"
    assert cut.model_dump()["stop_reason"] == word


def test_the_next_turn_finds_the_answer_in_the_cache(client: openai.OpenAI) -> None:
    turns: list[Any] = [{"role": "user", "content": "tell me about caches at length"}]
    first = client.chat.completions.create(model="tiny", messages=turns, max_tokens=200)
    turns += [
        {"role": "assistant", "content": first.choices[0].message.content},
        {"role": "user", "content": "go on"},
    ]
    second = client.chat.completions.create(model="tiny", messages=turns, max_tokens=1)
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    assert (second.usage.prompt_tokens_details.cached_tokens or 0) > 160


def test_responses_completions_and_models(client: openai.OpenAI) -> None:
    response = client.responses.create(model="tiny", input="hi", max_output_tokens=5)
    kinds = [event.type for event in client.responses.create(model="tiny", input="hi", stream=True)]
    assert (response.status, len(response.output_text) > 0) == ("incomplete", True)
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
    assert client.completions.create(model="tiny", prompt="a", max_tokens=4, echo=True).choices[0].text[0] == "a"
    assert [model.id for model in client.models.list()] == ["tiny"]


def test_refusals_become_the_sdks_errors(client: openai.OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "x"}]
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="nope", messages=messages)
    with pytest.raises(openai.BadRequestError, match="max_tokens=100000"):
        client.chat.completions.create(model="tiny", messages=messages, max_tokens=100_000)


def test_embeddings_are_the_same_in_every_encoding(worker_of: Callable[[str], Any]) -> None:
    client = openai.OpenAI(base_url=f"{worker_of('embed').url}/v1", api_key="none", max_retries=0)
    texts = ["my card was charged twice", "the card was charged two times", "the weather is nice"]
    packed = client.embeddings.create(model="minilm", input=texts)  # the SDK asks for base64
    plain = client.embeddings.create(model="minilm", input=texts, encoding_format="float")
    first, close, far = (item.embedding for item in plain.data)
    assert [item.embedding for item in packed.data] == [first, close, far]
    assert sum(value * value for value in first) == pytest.approx(1.0, abs=1e-5)
    assert len(first) == 384
    assert dot(first, close) > 0.4 > 0.2 > dot(first, far)


def dot(first: list[float], second: list[float]) -> float:
    return sum(a * b for a, b in zip(first, second, strict=True))
