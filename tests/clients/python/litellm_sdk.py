"""LiteLLM as a client."""

import asyncio
from typing import Any, Literal

import litellm
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

litellm.telemetry = False
ASK: dict[str, Any] = {
    "model": f"hosted_vllm/{CHAT_MODEL}",
    "messages": [{"role": "user", "content": QUESTION}],
    "api_base": CHAT_URL,
    "api_key": KEY,
    "num_retries": 0,
    **SAMPLING,
}


@case
def chat_whole() -> Any:
    answer = litellm.completion(**ASK)
    return answer.choices[0].message.content, answer.usage.completion_tokens


@case
def chat_stream() -> Any:
    chunks = list(litellm.completion(**ASK, stream=True, stream_options={"include_usage": True}))
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


@case
def tools() -> Any:
    choice = {"type": "function", "function": {"name": "weather"}}
    answer = litellm.completion(**ASK | {"max_tokens": 60}, tools=[TOOL], tool_choice=choice)
    return answer.choices[0].message.tool_calls[0].function.arguments


@case
def structured() -> Any:
    class Answer(BaseModel):
        answer: Literal["yes", "no"]

    return litellm.completion(**ASK | {"max_tokens": 30}, response_format=Answer).choices[0].message.content


@case
def completions() -> Any:
    answer = litellm.text_completion(
        **{name: value for name, value in ASK.items() if name != "messages"} | {"prompt": "one"}
    )
    return answer.choices[0].text


@case
def embeddings() -> Any:
    answer = litellm.embedding(model=f"hosted_vllm/{EMBEDDING_MODEL}", input=TEXTS, api_base=EMBEDDING_URL, api_key=KEY)
    return [row["embedding"] for row in answer.data]


@case
def asynchronous() -> Any:
    async def ask() -> list[Any]:
        return await asyncio.gather(*(litellm.acompletion(**ASK) for _ in range(8)))

    return asyncio.run(ask())[0].choices[0].message.content


@case
def unknown_model() -> Any:
    error = raised(lambda: litellm.completion(**ASK | {"model": "hosted_vllm/nobody"}))
    return error["error"], error["status"]


@case
def bad_parameter() -> Any:
    return raised(lambda: litellm.completion(**ASK | {"temperature": -3}))


main()
