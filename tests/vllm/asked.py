"""What `frontend.py` asks vLLM's own HTTP side: requests that no capture of a running vLLM holds.

A request is (kind of server, name, path, body), and what differs from a JSON POST. Kept apart from the answers, so that
those can be recorded again after a change of the pinned release.
"""

from typing import Any, NamedTuple

USER = [{"role": "user", "content": "hello"}]
# More tokens than the context of the model has; written out when it is sent.
LONG = "<word x 4000>"


class Asked(NamedTuple):
    """`body` is JSON, or bytes as they are sent; `content_type` None leaves the header out."""

    kind: str
    name: str
    path: str
    body: Any = None
    method: str = "POST"
    content_type: str | None = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


def _chat(name: str, /, **fields: Any) -> Asked:
    body = {"model": "tiny", "messages": USER, "max_tokens": 3, "temperature": 0} | fields
    return Asked("generate", f"chat_{name}", "/v1/chat/completions", body)


def _completion(name: str, /, **fields: Any) -> Asked:
    body = {"model": "tiny", "prompt": "def main", "max_tokens": 3, "temperature": 0} | fields
    return Asked("generate", f"completions_{name}", "/v1/completions", body)


def _response(name: str, /, **fields: Any) -> Asked:
    body = {"model": "tiny", "input": "Say hi", "max_output_tokens": 3, "temperature": 0} | fields
    return Asked("generate", f"responses_{name}", "/v1/responses", body)


def _message(name: str, /, path: str = "/v1/messages", **fields: Any) -> Asked:
    return Asked(
        "generate", f"messages_{name}", path, without({"model": "tiny", "messages": USER, "max_tokens": 3} | fields)
    )


def _count(name: str, /, **fields: Any) -> Asked:
    body = without({"model": "tiny", "messages": USER} | fields)
    return Asked("generate", f"count_tokens_{name}", "/v1/messages/count_tokens", body)


def _batch(name: str, /, **fields: Any) -> Asked:
    body = {"model": "tiny", "messages": [USER, [*USER, {"role": "assistant", "content": "x"}, *USER]], "max_tokens": 3}
    return Asked("generate", f"chat_batch_{name}", "/v1/chat/completions/batch", without(body | fields))


def _scoring(name: str, /, **fields: Any) -> Asked:
    body = {"model": "tiny", "query": "Is this good?", "items": ["yes it is", "no"], "label_token_ids": [10, 20]}
    return Asked("generate", f"generative_scoring_{name}", "/generative_scoring", without(body | fields))


def _generate(name: str, path: str, /, **fields: Any) -> Asked:
    return Asked("generate", name, path, fields)


def without(body: dict[str, Any]) -> dict[str, Any]:
    """A field of `...` is left out."""
    return {name: value for name, value in body.items() if value is not ...}


CHAT = (
    _chat("n2_stream_usage", n=2, seed=1, temperature=1, stream=True, stream_options={"include_usage": True}),
    _chat("n2_logprobs", n=2, seed=1, temperature=1, logprobs=True),
    _chat("n2_stream_continuous", n=2, seed=1, temperature=1, stream=True,
          stream_options={"include_usage": True, "continuous_usage_stats": True}),
    _chat("continuous_without_usage", stream=True, stream_options={"continuous_usage_stats": True}),
    _chat("stream_options_empty", stream=True, stream_options={}),
    _chat("stream_options_null", stream=False, stream_options=None),
    _chat("logprobs_alone", logprobs=True),
    _chat("stream_logprob_token_ids", stream=True, logprobs=True, logprob_token_ids=[10, 20]),
    _chat("n2_stream_logprob_token_ids", n=2, seed=1, temperature=1, stream=True, logprobs=True,
          logprob_token_ids=[10]),
    _chat("logprob_token_ids_empty", logprobs=True, logprob_token_ids=[]),
    _chat("logprob_token_ids_type", logprobs=True, logprob_token_ids=["x"]),
    _chat("logprob_token_ids_many", logprobs=True, logprob_token_ids=list(range(129))),
    _chat("stream_token_ids", stream=True, return_token_ids=True),
    _chat("stream_tokens_as_ids", stream=True, logprobs=True, top_logprobs=1, return_tokens_as_token_ids=True),
    _chat("max_completion_tokens", max_tokens=None, max_completion_tokens=2),
    _chat("max_tokens_over", max_tokens=100000),
    _chat("max_completion_tokens_over", max_completion_tokens=100000),
    _chat("no_room", max_tokens=2045),
    _chat("n_negative", n=-1),
    _chat("n_type", n="many"),
    _chat("greedy_n2", n=2),
    _chat("stream_type", stream="perhaps"),
    _chat("messages_type", messages="hello"),
    _chat("messages_type_stream", messages=5, stream=True),
    _chat("max_tokens_0", max_tokens=0),
    _chat("top_logprobs_negative", logprobs=True, top_logprobs=-2),
    _chat("image_stream", stream=True, messages=[{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}]),
    _chat("too_long_stream", stream=True, messages=[{"role": "user", "content": LONG}]),
    _batch("plain"),
    _batch("logprobs", logprobs=True, top_logprobs=2),
    _batch("logprob_token_ids", logprobs=True, logprob_token_ids=[10, 20]),
    _batch("token_ids", return_token_ids=True),
    _batch("n2", n=2),
    _batch("empty", messages=[]),
    _batch("empty_conversation", messages=[USER, []]),
    _batch("one_conversation", messages=USER),
    _batch("stream", stream=True),
    _batch("missing", messages=...),
    _batch("unknown_model", model="nope"),
    _batch("logprob_token_ids_alone", logprob_token_ids=[1]),
)  # fmt: skip

COMPLETIONS = (
    _completion("n2", n=2, seed=1, temperature=1),
    _completion("n2_batch", n=2, seed=1, temperature=1, prompt=["a", "b"]),
    _completion("n2_stream_usage", n=2, seed=1, temperature=1, stream=True, stream_options={"include_usage": True}),
    _completion("batch_stream_continuous", prompt=["a", "b"], stream=True,
                stream_options={"include_usage": True, "continuous_usage_stats": True}),
    _completion("id_lists", prompt=[[50, 60], [70]]),
    _completion("echo", echo=True),
    _completion("echo_stream", echo=True, stream=True),
    _completion("echo_stream_ids", echo=True, stream=True, return_token_ids=True),
    _completion("stream_ids", stream=True, return_token_ids=True),
    _completion("logprobs_0", logprobs=0),
    _completion("logprobs_stream", logprobs=2, stream=True),
    _completion("logprobs_as_ids", logprobs=1, return_tokens_as_token_ids=True),
    _completion("logprob_token_ids_stream", logprobs=1, logprob_token_ids=[10, 20], stream=True),
    _completion("logprob_token_ids_alone", logprob_token_ids=[10, 20]),
    _completion("logprob_token_ids_oov", logprobs=1, logprob_token_ids=[999999999]),
    _completion("empty_list", prompt=[]),
    _completion("empty_text", prompt=""),
    _completion("null", prompt=None),
    _completion("oov", prompt=[50, 999999999]),
    _completion("negative_id", prompt=[-1]),
    _completion("type", prompt={"a": 1}),
    _completion("mixed", prompt=["a", 5]),
    _completion("empty_texts", prompt=["a", ""]),
    _completion("too_long", prompt=LONG),
    _completion("too_long_ids", prompt="<ids x 2100>"),
    _completion("full_ids", prompt="<ids x 2048>"),
    _completion("nearly_full_ids", prompt="<ids x 2047>"),
    _completion("no_room", max_tokens=2047),
    _completion("max_tokens_type", max_tokens="abc"),
    _completion("unknown_model", model="nope"),
    _completion("stream_options_alone", stream_options={"include_usage": True}),
    _completion("logprobs_negative", logprobs=-3),
    _completion("temperature_stream", temperature=-1, stream=True),
)  # fmt: skip

RESPONSES = (
    _response("instructions", instructions="Be terse.", metadata={"a": "b"}, user="u"),
    _response("items", input=[{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]),
    _response("items_stream", input=[{"role": "user", "content": "hi"}], stream=True),
    _response("unlimited", max_output_tokens=None),
    _response("temperature", temperature=-1),
    _response("temperature_stream", temperature=-1, stream=True),
    _response("max_over", max_output_tokens=100000),
    _response("unknown_model", model="nope"),
    _response("unknown_model_stream", model="nope", stream=True),
    _response("previous", previous_response_id="resp_0"),
    _response("no_input", input=None),
    _response("stream_type", stream="perhaps"),
    _response("too_long", input=LONG),
    Asked("generate", "responses_missing_input", "/v1/responses", {"model": "tiny"}),
)

MESSAGES = (
    _message("plain", system="Be brief."),
    _message(
        "blocks",
        messages=[{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        system=[{"type": "text", "text": "Be brief."}],
    ),
    _message("stream", stream=True),
    _message("stream_system", stream=True, system="Be brief.", stop_sequences=["never"]),
    _message("unknown_model", model="nope"),
    _message("unknown_model_stream", model="nope", stream=True),
    _message("temperature", temperature=-1),
    _message("temperature_stream", temperature=-1, stream=True),
    _message("empty", messages=[]),
    _message("no_model", model=...),
    _message("no_messages", messages=...),
    _message("no_max_tokens", max_tokens=...),
    _message("max_tokens_0", max_tokens=0),
    _message("max_tokens_type", max_tokens="abc"),
    _message("max_tokens_over", max_tokens=100000),
    _message("role", messages=[{"role": "robot", "content": "hi"}]),
    _message("too_long", messages=[{"role": "user", "content": LONG}]),
    _count("plain", system="Be brief."),
    _count("unknown_model", model="nope"),
    _count("no_model", model=...),
    _count("no_messages", messages=...),
    _count("empty", messages=[]),
)

SCORING = (
    _scoring("plain"),
    _scoring("ids", query=[1, 2, 3], items=[[4], [5, 6]]),
    _scoring("item_first", item_first=True, apply_softmax=False),
    _scoring("no_items", items=[]),
    _scoring("no_labels", label_token_ids=[]),
    _scoring("label_oov", label_token_ids=[999999999]),
    _scoring("mixed", items=["a", [1]]),
    _scoring("missing", query=..., items=..., label_token_ids=...),
    _scoring("unknown_model", model="nope"),
    _scoring("long", items=[LONG]),
)

TOKENS = (
    _generate("tokenize_missing", "/tokenize", model="tiny"),
    _generate("tokenize_type", "/tokenize", model="tiny", prompt=5),
    _generate("tokenize_unknown_model", "/tokenize", model="nope", prompt="x"),
    _generate("tokenize_strings", "/tokenize", model="tiny", prompt="x y", return_token_strs=True),
    _generate("detokenize_missing", "/detokenize", model="tiny"),
    _generate("detokenize_type", "/detokenize", model="tiny", tokens="x"),
    _generate("detokenize_negative", "/detokenize", model="tiny", tokens=[-1]),
    _generate("detokenize_unknown_model", "/detokenize", model="nope", tokens=[1]),
)

# What the layers before every handler say, to a text model and to a pooling one.
FRONT = (
    Asked("generate", "front_text_plain", "/v1/chat/completions", b"hello", content_type="text/plain"),
    Asked("generate", "front_no_content_type", "/v1/chat/completions", b'{"messages":[]}', content_type=None),
    Asked("generate", "front_charset", "/tokenize", b'{"prompt":"x"}', content_type="application/json; charset=utf-8"),
    Asked("generate", "front_empty", "/v1/chat/completions", b""),
    Asked("generate", "front_list", "/v1/chat/completions", b"[1]"),
    Asked("generate", "front_string", "/v1/completions", b'"x"'),
    Asked("generate", "front_bad_json", "/v1/completions", b'{"prompt":'),
    Asked("generate", "front_null", "/v1/responses", b"null"),
    Asked("embed", "front_list", "/pooling", b"[1]"),
    Asked("embed", "front_list_embeddings", "/v1/embeddings", b"[1]"),
    Asked("embed", "front_empty", "/pooling", b""),
    Asked("embed", "front_bad_json", "/pooling", b"{"),
    Asked("embed", "front_text_plain", "/v1/embeddings", b"hello", content_type="text/plain"),
    Asked("score", "front_list", "/score", b"[1]"),
    Asked("score", "front_number", "/rerank", b"5"),
    Asked("generate", "front_post_health", "/health", b"", content_type=None),
    Asked("generate", "front_put", "/v1/completions", b"{}", method="PUT"),
    Asked("generate", "front_scale_out", "/inference/v1/generate", {"token_ids": [1]}),
    Asked("generate", "front_scale_out_get", "/inference/v1/generate", method="GET", content_type=None),
    Asked("generate", "front_kv_event_sources", "/kv_event_sources", method="GET", content_type=None),
)

GENERATING = (*CHAT, *COMPLETIONS, *RESPONSES, *MESSAGES, *SCORING, *TOKENS, *FRONT)
