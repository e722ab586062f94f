"""LlamaIndex' OpenAI-like models."""

import asyncio
from typing import Any

from cases import CHAT_MODEL, CHAT_URL, EMBEDDING_MODEL, EMBEDDING_URL, KEY, QUESTION, TEXTS, case, main, raised
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike

COMMON: dict[str, Any] = {
    "api_base": CHAT_URL,
    "api_key": KEY,
    "max_retries": 0,
    "temperature": 0,
    "max_tokens": 12,
    "context_window": 2048,
    "is_function_calling_model": True,
}
chat = OpenAILike(model=CHAT_MODEL, is_chat_model=True, **COMMON)
plain = OpenAILike(model=CHAT_MODEL, is_chat_model=False, **COMMON)
MESSAGES = [ChatMessage(role="user", content=QUESTION)]


@case
def chat_whole() -> Any:
    return chat.chat(MESSAGES).message.content


@case
def chat_stream() -> Any:
    return "".join(part.delta or "" for part in chat.stream_chat(MESSAGES))


@case
def tools() -> Any:
    def weather(place: str) -> str:
        """The weather of a place."""
        return place

    tool = FunctionTool.from_defaults(weather)
    answer = chat.chat_with_tools([tool], user_msg=QUESTION, tool_required=True, max_tokens=40)
    calls = chat.get_tool_calls_from_response(answer, error_on_no_tool_call=False)
    return [call.tool_name for call in calls]


@case
def completions() -> Any:
    return plain.complete("one").text


@case
def completions_stream() -> Any:
    return "".join(part.delta or "" for part in plain.stream_complete("one"))


@case
def embeddings() -> Any:
    client = OpenAILikeEmbedding(model_name=EMBEDDING_MODEL, api_base=EMBEDDING_URL, api_key=KEY, max_retries=0)
    return client.get_text_embedding_batch(TEXTS)


@case
def asynchronous() -> Any:
    async def ask() -> list[Any]:
        return await asyncio.gather(*(chat.achat(MESSAGES) for _ in range(8)))

    return asyncio.run(ask())[0].message.content


@case
def unknown_model() -> Any:
    other = OpenAILike(model="nobody", is_chat_model=True, **COMMON)
    return raised(lambda: other.chat(MESSAGES))["status"]


@case
def bad_parameter() -> Any:
    return raised(lambda: chat.chat(MESSAGES, temperature=-3))


main()
