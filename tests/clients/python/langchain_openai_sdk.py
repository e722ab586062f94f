"""LangChain's package for OpenAI."""

import asyncio
from typing import Any, Literal

from cases import CHAT_MODEL, CHAT_URL, EMBEDDING_MODEL, EMBEDDING_URL, KEY, QUESTION, TEXTS, TOOL, case, main, raised
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import BaseModel

COMMON: dict[str, Any] = {"api_key": KEY, "max_retries": 0, "temperature": 0, "max_tokens": 12}
chat = ChatOpenAI(model=CHAT_MODEL, base_url=CHAT_URL, stream_usage=True, **COMMON)


@case
def chat_whole() -> Any:
    answer = chat.invoke(QUESTION)
    return answer.content, answer.usage_metadata["output_tokens"]


@case
def chat_stream() -> Any:
    chunks = list(chat.stream(QUESTION))
    used = [chunk.usage_metadata["total_tokens"] for chunk in chunks if chunk.usage_metadata]
    return "".join(chunk.text for chunk in chunks), used


@case
def tools() -> Any:
    answer = chat.bind(max_tokens=60).bind_tools([TOOL], tool_choice="weather").invoke(QUESTION)
    return [(call["name"], call["args"]) for call in answer.tool_calls]


@case
def structured() -> Any:
    class Answer(BaseModel):
        answer: Literal["yes", "no"]

    longer = ChatOpenAI(model=CHAT_MODEL, base_url=CHAT_URL, **COMMON | {"max_tokens": 30})
    return longer.with_structured_output(Answer, method="json_schema").invoke(QUESTION).answer


@case
def completions() -> Any:
    return OpenAI(model=CHAT_MODEL, base_url=CHAT_URL, **COMMON).invoke("one")


@case
def responses() -> Any:
    return ChatOpenAI(model=CHAT_MODEL, base_url=CHAT_URL, use_responses_api=True, **COMMON).invoke(QUESTION).text


@case
def embeddings() -> Any:
    # check_embedding_ctx_length=False: it would ask for OpenAI's own tokenizer, and send token ids of that.
    client = OpenAIEmbeddings(
        model=EMBEDDING_MODEL, base_url=EMBEDDING_URL, api_key=KEY, check_embedding_ctx_length=False, max_retries=0
    )
    return client.embed_documents(TEXTS)


@case
def asynchronous() -> Any:
    async def ask() -> list[Any]:
        return await chat.abatch([QUESTION] * 8)

    return asyncio.run(ask())[0].content


@case
def left_early() -> Any:
    stream = chat.bind(max_tokens=500).stream(QUESTION)
    next(stream)
    stream.close()
    return chat.invoke(QUESTION).content


@case
def unknown_model() -> Any:
    error = raised(lambda: ChatOpenAI(model="nobody", base_url=CHAT_URL, **COMMON).invoke(QUESTION))
    return error["status"]


@case
def bad_parameter() -> Any:
    return raised(lambda: chat.bind(temperature=-3).invoke(QUESTION))


main()
