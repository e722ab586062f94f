"""The official OpenAI SDK, unchanged, straight on a worker and through the gateway.

The same tests on both: what fails on `direct` too is the engine or the test, what fails on `gateway` alone is ours.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal

import openai
import pytest
from pydantic import BaseModel

from tests.vllm.exchanges import TEXTS, TOOL, USER
from tests.vllm.workers import CHAT_MODEL, CLASSIFIER, EMBEDDING_MODEL

LENGTH = 12


@dataclass(frozen=True, slots=True)
class Clients:
    """One per model, since a worker serves one; through the gateway both have the same address."""

    chat: openai.OpenAI
    embedding: openai.OpenAI
    is_gateway: bool


class Answer(BaseModel):
    answer: Literal["yes", "no"]


@pytest.fixture(scope="module", params=["direct", "gateway"])
def clients(request: pytest.FixtureRequest) -> Iterator[Clients]:
    is_gateway = request.param == "gateway"
    if is_gateway:
        urls = [request.getfixturevalue("live_gateway").url] * 2
    else:
        live = request.getfixturevalue("live_workers")
        urls = [live.chat[0].url, live.embedding.url]
    with ExitStack() as stack:
        chat, embedding = (
            # No retries: they would hide an answer that should not have been given.
            stack.enter_context(openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=60))
            for url in urls
        )
        yield Clients(chat, embedding, is_gateway)


@pytest.fixture
async def async_chat(clients: Clients) -> AsyncIterator[openai.AsyncOpenAI]:
    url = str(clients.chat.base_url)
    async with openai.AsyncOpenAI(base_url=url, api_key="unused", max_retries=0, timeout=60) as client:
        yield client


def chat_text(client: openai.OpenAI) -> str:
    answer = client.chat.completions.create(model=CHAT_MODEL, messages=USER, max_tokens=LENGTH, temperature=0)
    return answer.choices[0].message.content or ""


def dot(one: list[float], other: list[float]) -> float:
    return sum(x * y for x, y in zip(one, other, strict=True))


def test_models(clients: Clients) -> None:
    listed = [model.id for model in clients.chat.models.list()]
    assert listed == ([CLASSIFIER, EMBEDDING_MODEL, CHAT_MODEL] if clients.is_gateway else [CHAT_MODEL])


def test_chat(clients: Clients) -> None:
    answer = clients.chat.chat.completions.create(
        model=CHAT_MODEL, messages=USER, max_tokens=LENGTH, temperature=0, user="someone"
    )
    assert answer.model == CHAT_MODEL
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.completion_tokens == LENGTH
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + LENGTH


def test_chat_stream(clients: Clients) -> None:
    chunks = list(
        clients.chat.chat.completions.create(
            model=CHAT_MODEL, messages=USER, max_tokens=LENGTH, temperature=0, stream=True
        )
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == chat_text(clients.chat)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason == "length"
    assert all(chunk.usage is None for chunk in chunks)


def test_chat_stream_with_usage(clients: Clients) -> None:
    *chunks, last = clients.chat.chat.completions.create(
        model=CHAT_MODEL,
        messages=USER,
        max_tokens=LENGTH,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == chat_text(clients.chat)
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens == LENGTH


def test_chat_stream_helper(clients: Clients) -> None:
    with clients.chat.chat.completions.stream(
        model=CHAT_MODEL, messages=USER, max_tokens=60, temperature=0, response_format=Answer
    ) as stream:
        assert {event.type for event in stream} >= {"chunk", "content.delta", "content.done"}
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Answer)


def test_several_choices(clients: Clients) -> None:
    answer = clients.chat.chat.completions.create(
        model=CHAT_MODEL, messages=USER, max_tokens=LENGTH, temperature=1, seed=7, n=2
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.choices[0].message.content != answer.choices[1].message.content


def test_logprobs(clients: Clients) -> None:
    answer = clients.chat.chat.completions.create(
        model=CHAT_MODEL, messages=USER, max_tokens=LENGTH, temperature=0, logprobs=True, top_logprobs=3
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert len(logprobs.content) == LENGTH
    for token in logprobs.content:
        assert len(token.top_logprobs) == 3
        # Greedy: the sampled token is the likeliest.
        assert token.logprob == max(top.logprob for top in token.top_logprobs)


def test_structured_output(clients: Clients) -> None:
    answer = clients.chat.chat.completions.parse(
        model=CHAT_MODEL, messages=USER, max_tokens=60, temperature=0, response_format=Answer
    )
    assert answer.choices[0].finish_reason == "stop"
    assert isinstance(answer.choices[0].message.parsed, Answer)


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
def test_tool_call(clients: Clients, is_stream: bool) -> None:
    request = {
        "model": CHAT_MODEL,
        "messages": USER,
        # The grammar of tool calls lets the model pad with whitespace.
        "max_tokens": 400,
        "temperature": 0,
        "tools": [TOOL],
        "tool_choice": {"type": "function", "function": {"name": "pick"}},
    }
    if is_stream:
        deltas = [chunk.choices[0].delta for chunk in clients.chat.chat.completions.create(**request, stream=True)]
        functions = [call.function for delta in deltas for call in delta.tool_calls or ()]
    else:
        answer = clients.chat.chat.completions.create(**request)
        functions = [call.function for call in answer.choices[0].message.tool_calls or ()]
    assert "".join(function.name or "" for function in functions) == "pick"
    assert json.loads("".join(function.arguments or "" for function in functions))["answer"] in ("yes", "no")


def test_completions(clients: Clients) -> None:
    request = {"model": CHAT_MODEL, "prompt": "Each Contributor", "max_tokens": LENGTH, "temperature": 0}
    whole = clients.chat.completions.create(**request)
    assert whole.usage is not None
    assert whole.usage.completion_tokens == LENGTH
    chunks = list(clients.chat.completions.create(**request, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text != ""


def test_responses(clients: Clients) -> None:
    request = {"model": CHAT_MODEL, "input": "Each Contributor", "max_output_tokens": LENGTH, "temperature": 0}
    whole = clients.chat.responses.create(**request)
    assert whole.status == "incomplete"
    assert whole.usage is not None
    assert whole.usage.output_tokens == LENGTH
    events = list(clients.chat.responses.create(**request, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created"
    assert events[-1].type == "response.completed"
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert deltas == whole.output_text != ""
    assert events[-1].response.output_text == whole.output_text


def test_embeddings(clients: Clients) -> None:
    # Left to itself the SDK asks for base64 and decodes it.
    default = clients.embedding.embeddings.create(model=EMBEDDING_MODEL, input=TEXTS)
    floats = clients.embedding.embeddings.create(model=EMBEDDING_MODEL, input=TEXTS, encoding_format="float")
    vectors = [item.embedding for item in default.data]
    assert vectors == [item.embedding for item in floats.data]
    assert [item.index for item in default.data] == [0, 1, 2]
    charged, billed, weather = vectors
    assert len(charged) == 384
    # A real model: two sentences that mean the same are nearer than two that do not.
    assert dot(charged, billed) > 0.5 > dot(charged, weather)


def test_unknown_model(clients: Clients) -> None:
    for create in (
        lambda: clients.chat.chat.completions.create(model="nobody", messages=USER),
        lambda: clients.chat.chat.completions.create(model="nobody", messages=USER, stream=True),
        lambda: clients.chat.completions.create(model="nobody", prompt="x"),
    ):
        with pytest.raises(openai.NotFoundError) as caught:
            create()
        assert caught.value.param == "model"
    with pytest.raises(openai.NotFoundError):
        clients.embedding.embeddings.create(model="nobody", input="x")


def test_bad_requests(clients: Clients) -> None:
    for create in (
        lambda: clients.chat.chat.completions.create(model=CHAT_MODEL, messages=USER, temperature=-1),
        lambda: clients.chat.chat.completions.create(model=CHAT_MODEL, messages=USER, temperature=-1, stream=True),
        lambda: clients.chat.completions.create(model=CHAT_MODEL, prompt="word " * 3000),
        lambda: clients.chat.responses.create(model=CHAT_MODEL, input="x", temperature=-1),
        lambda: clients.embedding.embeddings.create(model=EMBEDDING_MODEL, input="x", dimensions=3),
    ):
        with pytest.raises(openai.BadRequestError) as caught:
            create()
        assert caught.value.type == "BadRequestError"


HASTY_S = 0.5
"""Too short for its answer on any machine."""


def test_client_timeout(clients: Clients) -> None:
    hasty = clients.chat.with_options(timeout=HASTY_S)
    with pytest.raises(openai.APITimeoutError):
        hasty.chat.completions.create(model=CHAT_MODEL, messages=USER, max_tokens=1900, extra_body={"ignore_eos": True})
    assert chat_text(clients.chat)


def test_cancelled_stream(clients: Clients) -> None:
    stream = clients.chat.chat.completions.create(
        model=CHAT_MODEL, messages=USER, max_tokens=1900, stream=True, extra_body={"ignore_eos": True}
    )
    with stream:
        assert next(iter(stream)).choices[0].delta.role == "assistant"
    assert chat_text(clients.chat)


async def test_many_at_once(clients: Clients, async_chat: openai.AsyncOpenAI) -> None:
    async def ask(number: int) -> str:
        messages = [{"role": "user", "content": f"Section {number} of the License"}]
        answer = await async_chat.chat.completions.create(
            model=CHAT_MODEL, messages=messages, max_tokens=LENGTH, temperature=0
        )
        return answer.choices[0].message.content or ""

    together = await asyncio.gather(*map(ask, range(16)))
    one_by_one = [await ask(number) for number in range(16)]
    assert together == one_by_one
    assert len(set(together)) > 8
