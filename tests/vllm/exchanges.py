"""Requests whose answers are compared byte by byte, straight from a worker against through the gateway.

Every path that the gateway serves is in the table, and every answer shape of the engine: whole, streamed, binary, and
refused by it. All are deterministic: greedy sampling on seeded weights.
"""

import json
from typing import Any, NamedTuple

from tests.vllm.workers import CHAT_MODEL, CLASSIFIER, EMBEDDING_MODEL


class Exchange(NamedTuple):
    """A request, and the status that the worker is known to answer it with."""

    name: str
    path: str
    model: str
    body: bytes
    status: int = 200
    content_type: str = "application/json"
    worker_path: str = ""
    """Where the worker is asked when it is not at `path`: it knows another spelling."""


USER = [{"role": "user", "content": "Tell me what a Licensor grants to You, and under which conditions of the License"}]
PROMPT = "Each Contributor hereby grants"
TEXTS = ["my card was charged twice", "I was billed two times", "the weather is nice – naïve ☃"]
YES_OR_NO = {
    "type": "object",
    "properties": {"answer": {"type": "string", "enum": ["yes", "no"]}},
    "required": ["answer"],
    "additionalProperties": False,
}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "verdict", "schema": YES_OR_NO}}
TOOL = {"type": "function", "function": {"name": "pick", "strict": True, "parameters": YES_OR_NO}}
MANY = [f"line {number}" for number in range(600)]


def _chat(name: str, path: str = "/v1/chat/completions", *, status: int = 200, **fields: Any) -> Exchange:
    fields = {"messages": USER, "max_tokens": 12, "temperature": 0} | fields
    return _exchange(name, path, CHAT_MODEL, status, fields)


def _completion(name: str, *, status: int = 200, **fields: Any) -> Exchange:
    fields = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0} | fields
    return _exchange(name, "/v1/completions", CHAT_MODEL, status, fields)


def _response(name: str, *, status: int = 200, **fields: Any) -> Exchange:
    fields = {"input": PROMPT, "max_output_tokens": 12, "temperature": 0} | fields
    return _exchange(name, "/v1/responses", CHAT_MODEL, status, fields)


def _message(name: str, path: str = "/v1/messages", *, status: int = 200, **fields: Any) -> Exchange:
    return _chat(name, path, status=status, **fields)


def _tokens(name: str, path: str, *, status: int = 200, **fields: Any) -> Exchange:
    return _exchange(name, path, CHAT_MODEL, status, fields)


def _pooled(name: str, path: str, *, status: int = 200, **fields: Any) -> Exchange:
    return _exchange(name, path, EMBEDDING_MODEL, status, fields)


def _classified(name: str, path: str, *, status: int = 200, **fields: Any) -> Exchange:
    return _exchange(name, path, CLASSIFIER, status, fields)


def _exchange(name: str, path: str, model: str, status: int, fields: dict[str, Any]) -> Exchange:
    return Exchange(name, path, model, json.dumps({"model": model} | fields).encode(), status)


EXCHANGES = (
    _chat("chat"),
    _chat("chat_stream", stream=True),
    _chat("chat_stream_usage", stream=True, stream_options={"include_usage": True}),
    _chat("chat_stream_continuous_usage", stream=True, stream_options={"continuous_usage_stats": True}),
    _chat("chat_logprobs", logprobs=True, top_logprobs=3),
    _chat("chat_logprob_token_ids", logprobs=True, logprob_token_ids=[5, 9, 700]),
    _chat("chat_stream_logprobs", stream=True, logprobs=True, top_logprobs=2),
    _chat("chat_two_choices", n=2, temperature=1, seed=7),
    _chat("chat_tool", tools=[TOOL], tool_choice={"type": "function", "function": {"name": "pick"}}, max_tokens=300),
    _chat("chat_json_schema", response_format=SCHEMA),
    _chat("chat_unknown_field", vendor_extension={"kept": [1, 2.50, None]}),
    _chat("chat_unicode", messages=[{"role": "user", "content": "naïve ☃ \N{GRINNING FACE} \\ \" \u2028"}]),
    _chat("chat_batch", "/v1/chat/completions/batch", messages=[USER, USER[:1]]),
    # As no serialiser would write it: order, spacing, escapes and number forms are the client's.
    Exchange(
        "chat_odd_json",
        "/v1/chat/completions",
        CHAT_MODEL,
        b'\n{ "temperature" : 0.0 ,"max_tokens":\t12,\r\n "messages":[{"content":"\\u00e9t\\u00C9 \xe2\x98\x83",'
        b'"role":"user"}] , "x": 1e2, "model" :"tiny"  }\n',
    ),
    _completion("completion"),
    _completion("completion_several", prompt=[PROMPT, "Work", "a"]),
    _completion("completion_tokens", prompt=[5, 6, 7, 8]),
    _completion("completion_stream", stream=True),
    _completion("completion_stream_usage", stream=True, stream_options={"include_usage": True}),
    _completion("completion_logprobs", logprobs=2, echo=True),
    _response("response"),
    _response("response_stream", stream=True),
    _response("response_instructions", instructions="Be terse.", metadata={"kept": "yes"}),
    _message("message"),
    _message("message_stream", stream=True),
    _message("message_system", system="Be terse.", stop_sequences=["zzz"]),
    _message("message_tokens", "/v1/messages/count_tokens"),
    _tokens("tokenize", "/tokenize", prompt=PROMPT),
    _tokens("tokenize_chat", "/tokenize", messages=USER, return_token_strs=True),
    _tokens("detokenize", "/detokenize", tokens=[5, 6, 700]),
    _tokens("generative_scoring", "/generative_scoring", query="Good?", items=["yes", "no"], label_token_ids=[10, 20]),
    _pooled("embedding_default", "/v1/embeddings", input=TEXTS),
    _pooled("embedding_float", "/v1/embeddings", input=TEXTS, encoding_format="float"),
    _pooled("embedding_base64", "/v1/embeddings", input=TEXTS, encoding_format="base64"),
    _pooled("embedding_bytes", "/v1/embeddings", input=TEXTS, encoding_format="bytes"),
    _pooled("embedding_bytes_only", "/v1/embeddings", input=TEXTS, encoding_format="bytes_only"),
    # Its `metadata` response header has 68 KB, past the limit of many HTTP clients.
    _pooled("embedding_bytes_many", "/v1/embeddings", input=MANY, encoding_format="bytes"),
    _pooled("embedding_tokens", "/v1/embeddings", input=[101, 2026, 4003, 102]),
    _pooled("embedding_cohere", "/v2/embed", texts=TEXTS, embedding_types=["float"]),
    _pooled("embedding_cohere_base64", "/v2/embed", texts=TEXTS, embedding_types=["base64", "ubinary"]),
    _pooled("pooling", "/pooling", input=TEXTS),
    _pooled("pooling_half_big_endian", "/pooling", input=TEXTS, encoding_format="bytes", embed_dtype="float16",
            endianness="big"),
    _pooled("pooling_v1", "/v1/pooling", input=TEXTS)._replace(worker_path="/pooling"),
    _classified("classify", "/classify", input=TEXTS),
    _classified("classify_raw", "/classify", input=TEXTS[0], use_activation=False),
    _classified("classify_tokens", "/classify", input=[[5, 6, 7], [8]]),
    _classified("classify_v1", "/v1/classify", input=TEXTS)._replace(worker_path="/classify"),
    _classified("classify_as_bytes", "/classify", input=TEXTS, encoding_format="bytes"),
    _pooled("score", "/score", text_1=TEXTS[0], text_2=TEXTS[1:]),
    _pooled("score_v1", "/v1/score", text_1=TEXTS[0], text_2=TEXTS[1:]),
    _pooled("rerank", "/rerank", query=TEXTS[0], documents=TEXTS[1:], top_n=1),
    _pooled("rerank_v1", "/v1/rerank", query=TEXTS[0], documents=TEXTS[1:]),
    _pooled("rerank_v2", "/v2/rerank", query=TEXTS[0], documents=TEXTS[1:]),
    # What the worker refuses is the worker's to say.
    _chat("error_temperature", status=400, temperature=-1),
    _chat("error_temperature_stream", status=400, temperature=-1, stream=True),
    _chat("error_type", status=400, max_tokens="abc"),
    _chat("error_no_messages", status=400, messages=[]),
    _chat("error_context", status=400, messages=[{"role": "user", "content": "word " * 3000}]),
    _chat("error_logprobs", status=400, top_logprobs=2),
    _chat("error_image", status=400, messages=[{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}]),
    _chat("error_content_type", status=400)._replace(content_type="text/plain"),
    _completion("error_greedy_choices", status=400, n=2),
    _response("error_response", status=400, temperature=-1),
    _message("error_message", status=400, messages=[]),
    _pooled("error_embedding_length", "/v1/embeddings", status=400, input="word " * 3000),
    _pooled("error_dimensions", "/v1/embeddings", status=400, input="a", dimensions=64),
    _pooled("error_encoding", "/pooling", status=400, input="a", encoding_format="hex"),
    _pooled("error_dtype", "/v1/embeddings", status=400, input="a", embed_dtype="float8", encoding_format="bytes"),
    _classified("error_classify", "/classify", status=400, input=[]),
)  # fmt: skip
