"""What the stub answers, rendered once: the bytes of a vLLM server, whose shapes `app.sim.worker` has in full."""

import json
from functools import lru_cache
from typing import Any

from loadtest.prompts import MODEL

LEAST_EVENTS = 5
"""Role, one of text, the one with the reason it ended, usage, and [DONE]."""

TEXT = " The quick brown fox jumps over the lazy dog, and then it does that once more." * 8

HEAD = {"id": "chatcmpl-0123456789abcdef0123456789abcdef", "created": 1796070480, "model": MODEL}

USAGE = {"prompt_tokens": 512, "total_tokens": 640, "completion_tokens": 128, "prompt_tokens_details": None}


def plain(status: bytes, body: bytes, content_type: bytes = b"application/json") -> bytes:
    """A whole answer with its length, as uvicorn writes it for vLLM."""
    return (
        b"HTTP/1.1 %s\r\ndate: Tue, 01 Dec 2026 00:00:00 GMT\r\nserver: uvicorn\r\n"
        b"content-length: %d\r\ncontent-type: %s\r\n\r\n%s" % (status, len(body), content_type, body)
    )


def completion_body() -> bytes:
    """A chat completion that was not streamed."""
    message = {
        "role": "assistant",
        "content": TEXT,
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
        "reasoning": None,
    }
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": "length",
        "stop_reason": None,
        "token_ids": None,
        "routed_experts": None,
    }
    rest = ("prompt_logprobs", "prompt_token_ids", "prompt_text", "kv_transfer_params", "ec_transfer_params", "metrics")
    body = {
        **HEAD,
        "object": "chat.completion",
        "choices": [choice],
        "service_tier": None,
        "system_fingerprint": "vllm-0.32.0-tp1-00000000",
        "usage": USAGE,
        **dict.fromkeys(rest),
    }
    return _json(body)


@lru_cache(maxsize=8)
def events(count: int) -> tuple[bytes, ...]:
    """The `count` server-sent events of one stream: one per token, as an engine makes one token per step."""
    if count < LEAST_EVENTS:
        raise ValueError(f"a stream has at least {LEAST_EVENTS} events")
    first = _chunk([_choice({"role": "assistant", "content": ""})], prompt_token_ids=None, prompt_text=None)
    text = _chunk([_choice({"content": " token"}, token_ids=None)])
    last = _chunk([{**_choice({"content": ""}, token_ids=None), "finish_reason": "length", "stop_reason": None}])
    usage = _chunk([], usage=USAGE, system_fingerprint="vllm-0.32.0-tp1-00000000")
    texts = [text] * (count - LEAST_EVENTS + 1)
    return tuple(b"data: " + data + b"\n\n" for data in (first, *texts, last, usage, b"[DONE]"))


def metrics_page(running: int, started_s: float) -> bytes:
    """The lines of vLLM's /metrics that a router reads."""
    labels = f'{{engine="0",model_name="{MODEL}"}}'
    return (
        f"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{labels} {float(running)}\n"
        f"# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{labels} 0.0\n"
        f"# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{labels} 0.25\n"
        f"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {started_s:.2f}\n"
    ).encode()


def models_body() -> bytes:
    entry = {
        "id": MODEL,
        "object": "model",
        "created": HEAD["created"],
        "owned_by": "vllm",
        "root": MODEL,
        "parent": None,
        "max_model_len": 131072,
        "permission": [],
    }
    return _json({"object": "list", "data": [entry]})


def _choice(delta: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, **more}


def _chunk(choices: list[dict[str, Any]], **more: Any) -> bytes:
    return _json({**HEAD, "object": "chat.completion.chunk", "choices": choices, **more})


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
