"""What real workers say that they serve, and what a client is told of what they do not."""

from typing import Any

import httpx
import pytest

from tests.patience import PATIENCE_S
from tests.vllm.exchanges import TEXTS, USER
from tests.vllm.process import ServerProcess
from tests.vllm.workers import CHAT_MODEL, CLASSIFIER, EMBEDDING_MODEL, Workers

ASKED: dict[str, Any] = {"messages": USER, "input": TEXTS, "prompt": "a", "max_tokens": 1}


@pytest.mark.parametrize(
    ("model", "path", "named", "not_named"),
    [
        (EMBEDDING_MODEL, "/v1/chat/completions", "/v1/embeddings", "/v1/chat/completions"),
        (EMBEDDING_MODEL, "/v1/classify", "/pooling", "/classify"),
        (CHAT_MODEL, "/v1/embeddings", "/v1/messages", "/pooling"),
        (CHAT_MODEL, "/pooling", "/generative_scoring", "/pooling"),
        (CLASSIFIER, "/v1/responses", "/classify", "/v1/embeddings"),
    ],
)
def test_a_task_that_a_model_does_not_do(
    model: str, path: str, named: str, not_named: str, live_gateway: ServerProcess
) -> None:
    answer = httpx.post(live_gateway.url + path, json={"model": model} | ASKED, timeout=PATIENCE_S)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "task_not_served", "model")
    served = error["message"].partition(" is served at ")[2].rstrip(")").split(", ")
    assert named in served
    assert not_named not in served


def test_a_worker_itself_knows_no_such_path(live_workers: Workers) -> None:
    """What a client would get without the gateway."""
    for worker, path in ((live_workers.embedding, "/v1/chat/completions"), (live_workers.classifier, "/v1/classify")):
        answer = httpx.post(worker.url + path, json=ASKED, timeout=PATIENCE_S)
        assert (answer.status_code, answer.json()) == (404, {"detail": "Not Found"})
