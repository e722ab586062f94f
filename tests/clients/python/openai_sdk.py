"""OpenAI's SDK for Python."""

import asyncio
from typing import Any, Literal

import openai
from cases import (
    CHAT_MODEL,
    CHAT_URL,
    EMBEDDING_MODEL,
    EMBEDDING_URL,
    KEY,
    QUESTION,
    SAMPLING,
    TEXTS,
    TOOL,
    case,
    main,
    raised,
)
from pydantic import BaseModel

chat = openai.OpenAI(base_url=CHAT_URL, api_key=KEY, max_retries=0, timeout=60)
embedding = openai.OpenAI(base_url=EMBEDDING_URL, api_key=KEY, max_retries=0, timeout=60)
MESSAGES: Any = [{"role": "user", "content": QUESTION}]
ASK: dict[str, Any] = {"model": CHAT_MODEL, "messages": MESSAGES, **SAMPLING}


@case
def models() -> Any:
    assert CHAT_MODEL in [model.id for model in chat.models.list()]
    return "listed"


@case
def chat_whole() -> Any:
    answer = chat.chat.completions.create(**ASK)
    return answer.choices[0].message.content, answer.choices[0].finish_reason, answer.usage.completion_tokens


@case
def chat_stream() -> Any:
    stream = chat.chat.completions.create(**ASK, stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    assert not chunks[-1].choices
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    return text, chunks[-1].usage.total_tokens, len(chunks)


@case
def tools() -> Any:
    choice: Any = {"type": "function", "function": {"name": "weather"}}
    answer = chat.chat.completions.create(**ASK | {"max_tokens": 60}, tools=[TOOL], tool_choice=choice)
    call = answer.choices[0].message.tool_calls[0]
    assert call.function.name == "weather"
    return call.function.arguments


@case
def tools_stream() -> Any:
    choice: Any = {"type": "function", "function": {"name": "weather"}}
    stream = chat.chat.completions.create(**ASK | {"max_tokens": 60}, tools=[TOOL], tool_choice=choice, stream=True)
    deltas = [call for chunk in stream for choice in chunk.choices for call in choice.delta.tool_calls or []]
    return "".join(delta.function.arguments or "" for delta in deltas)


@case
def structured() -> Any:
    class Answer(BaseModel):
        answer: Literal["yes", "no"]

    parsed = chat.chat.completions.parse(**ASK | {"max_tokens": 30}, response_format=Answer)
    return parsed.choices[0].message.parsed.answer


@case
def completions() -> Any:
    answer = chat.completions.create(model=CHAT_MODEL, prompt=["one", "two"], **SAMPLING)
    return [choice.text for choice in answer.choices]


@case
def responses() -> Any:
    answer = chat.responses.create(model=CHAT_MODEL, input=QUESTION, temperature=0, max_output_tokens=12)
    return answer.output_text, answer.usage.output_tokens


@case
def responses_stream() -> Any:
    stream = chat.responses.create(model=CHAT_MODEL, input=QUESTION, temperature=0, max_output_tokens=12, stream=True)
    events = list(stream)
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    # How many deltas there are depends on how fast the engine was.
    return text, list(dict.fromkeys(event.type for event in events))


@case
def embeddings() -> Any:
    return [row.embedding for row in embedding.embeddings.create(model=EMBEDDING_MODEL, input=TEXTS).data]


@case
def embeddings_float() -> Any:
    answer = embedding.embeddings.create(model=EMBEDDING_MODEL, input=TEXTS[0], encoding_format="float")
    return answer.data[0].embedding


@case
def asynchronous() -> Any:
    async def ask() -> list[str]:
        async with openai.AsyncOpenAI(base_url=CHAT_URL, api_key=KEY, max_retries=0, timeout=60) as client:
            answers = await asyncio.gather(*(client.chat.completions.create(**ASK) for _ in range(8)))
            return [answer.choices[0].message.content for answer in answers]

    texts = asyncio.run(ask())
    assert len(texts) == 8
    return texts[0]


@case
def left_early() -> Any:
    with chat.chat.completions.create(**ASK | {"max_tokens": 500}, stream=True) as stream:
        first = next(iter(stream))
        assert first.choices
    return chat.chat.completions.create(**ASK).choices[0].message.content


@case
def unknown_model() -> Any:
    error = raised(lambda: chat.chat.completions.create(**ASK | {"model": "nobody"}))
    return error["error"], error["status"]


@case
def bad_parameter() -> Any:
    error = raised(lambda: chat.chat.completions.create(**ASK | {"temperature": -3}))
    assert (error["error"], error["status"]) == ("BadRequestError", 400)
    return error


main()
