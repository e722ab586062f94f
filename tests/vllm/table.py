"""Which endpoint is compared with real vLLM, by which client, in which encoding: every cell, and its tests.

The lane prints the table at its end, from what became of the tests; the README shows it with all of them passed.
"""

from collections.abc import Mapping
from typing import NamedTuple

from app.api.endpoints import ENDPOINTS

COLUMNS = ("http", "http stream", "float", "base64", "bytes", "bytes_only", "openai", "openai stream")
"""Client and encoding: plain HTTP for the first six, then OpenAI's SDK for Python."""

SDK = "test_openai_sdk.py::"
ENCODED = "test_encodings.py::test_every_encoding["
NO = "–"
"""Not served by vLLM, or not offered by the client."""


class Cell(NamedTuple):
    endpoint: str
    column: str


def _cells() -> dict[Cell, tuple[str, ...]]:
    """Cell -> what the ids of its tests begin with, within tests/vllm. What is not in it does not exist."""
    whole = {
        "/v1/chat/completions": ("chat", "error_temperature", "error_type", "error_context"),
        "/v1/chat/completions/batch": ("chat_batch",),
        "/v1/completions": ("completion", "completion_several", "completion_tokens", "completion_logprobs"),
        "/v1/responses": ("response", "response_instructions", "error_response"),
        "/v1/messages": ("message", "message_system", "error_message"),
        "/v1/messages/count_tokens": ("message_tokens",),
        "/v1/embeddings": ("embedding_default", "error_embedding_length", "error_dtype"),
        "/v2/embed": ("embedding_cohere",),
        "/v1/classify": ("classify_v1",),
        "/classify": ("classify", "classify_raw", "classify_tokens", "error_classify"),
        "/v1/pooling": ("pooling_v1",),
        "/pooling": ("pooling", "error_encoding"),
        "/v1/score": ("score_v1",),
        "/score": ("score",),
        "/v1/rerank": ("rerank_v1",),
        "/v2/rerank": ("rerank_v2",),
        "/rerank": ("rerank",),
        "/generative_scoring": ("generative_scoring",),
        "/tokenize": ("tokenize", "tokenize_chat"),
        "/detokenize": ("detokenize",),
    }
    streams = {
        "/v1/chat/completions": ("chat_stream", "chat_stream_usage", "chat_stream_logprobs"),
        "/v1/completions": ("completion_stream", "completion_stream_usage"),
        "/v1/responses": ("response_stream",),
        "/v1/messages": ("message_stream",),
    }
    cells: dict[Cell, tuple[str, ...]] = {}
    for column, table in (("http", whole), ("http stream", streams)):
        for path, names in table.items():
            cells[Cell(path, column)] = tuple(f"test_bytes.py::test_answer_is_the_workers[{name}]" for name in names)
    for path in ("/v1/embeddings", "/v1/pooling", "/pooling"):
        for encoding in ("float", "base64", "bytes", "bytes_only"):
            cells[Cell(path, encoding)] = (f"{ENCODED}{path}-{encoding}-",)
    cells[Cell("/v2/embed", "float")] = ("test_bytes.py::test_answer_is_the_workers[embedding_cohere]",)
    cells[Cell("/v2/embed", "base64")] = ("test_bytes.py::test_answer_is_the_workers[embedding_cohere_base64]",)
    for path, tests in {
        "/v1/chat/completions": ("test_chat[gateway]", "test_several_choices[gateway]", "test_logprobs[gateway]"),
        "/v1/completions": ("test_completions[gateway]",),
        "/v1/responses": ("test_responses[gateway]",),
        "/v1/embeddings": ("test_embeddings[gateway]",),
    }.items():
        cells[Cell(path, "openai")] = tuple(SDK + test for test in tests)
    for path, tests in {
        "/v1/chat/completions": ("test_chat_stream[gateway]", "test_chat_stream_with_usage[gateway]"),
        "/v1/completions": ("test_completions[gateway]",),
        "/v1/responses": ("test_responses[gateway]",),
    }.items():
        cells[Cell(path, "openai stream")] = tuple(SDK + test for test in tests)
    return cells


CELLS = _cells()


def outcomes(passed: Mapping[str, bool]) -> dict[Cell, str]:
    """passed: test id within tests/vllm -> whether it passed, of those that ran."""
    table = {}
    for cell, beginnings in CELLS.items():
        found = [[ok for test, ok in passed.items() if test.startswith(beginning)] for beginning in beginnings]
        if all(all(ran) and ran for ran in found):
            table[cell] = "passed"
        else:
            table[cell] = "FAILED" if any(False in ran for ran in found) else "not run"
    return table


def render(table: Mapping[Cell, str]) -> str:
    """As Markdown."""
    lines = ["| | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for endpoint in (each for each in ENDPOINTS if not each.is_form):
        row = [table.get(Cell(endpoint.path, column), NO) for column in COLUMNS]
        lines.append(f"| `{endpoint.path}` | " + " | ".join(row) + " |")
    return "\n".join(lines)
