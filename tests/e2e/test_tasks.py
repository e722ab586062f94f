"""One gateway before models that chat, embed, classify and rank: paths, tasks and pins, through whole processes."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.commands.simulated import SimulatedFleet
from app.sim.worker.options import WorkerOptions
from tests.e2e.conftest import Gateway
from tests.patience import PATIENCE_S

TASKS = {"talk": "generate", "vectors": "embed", "labels": "classify", "ranks": "score"}
PINS = {"labels": {"engine": "vllm", "engine_version": "==0.32.*"}, "ranks": {"engine_version": "<0.32"}}


@pytest.fixture(scope="module")
def served() -> Iterator[Gateway]:
    options = [
        WorkerOptions(port=0, served_model_names=(name,), task=task, speed=1000)  # type: ignore[arg-type]
        for name, task in TASKS.items()
    ]
    with SimulatedFleet(options) as fleet:
        gateway = Gateway("serve", "--worker-urls", *fleet.urls, "--processes", "1", "--pools", json.dumps(PINS))
        try:
            gateway.listening()
            gateway.until(lambda status: [worker["health"] for worker in status["workers"]] == ["healthy"] * 4)
            yield gateway
        finally:
            gateway.end()


def post(served: Gateway, path: str, **body: Any) -> httpx.Response:
    return httpx.post(served.data + path, json=body, timeout=PATIENCE_S)


def test_all_models_stand_behind_one_address(served: Gateway) -> None:
    models = httpx.get(served.data + "/v1/models", timeout=PATIENCE_S).json()["data"]
    assert sorted(model["id"] for model in models) == sorted(TASKS)


@pytest.mark.parametrize(
    ("model", "path", "more"),
    [
        ("talk", "/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}),
        ("vectors", "/v1/embeddings", {"input": ["a", "b"]}),
        ("vectors", "/v1/pooling", {"input": ["a", "b"]}),
        ("vectors", "/pooling", {"input": ["a", "b"]}),
        ("labels", "/v1/classify", {"input": ["a", "b"]}),
        ("labels", "/classify", {"input": ["a", "b"]}),
    ],
)
def test_each_does_its_task_in_either_spelling(served: Gateway, model: str, path: str, more: dict[str, Any]) -> None:
    answer = post(served, path, model=model, **more)
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-warmset-simulated"] == "true"


def test_a_query_goes_along_with_the_other_spelling(served: Gateway) -> None:
    answer = post(served, "/v1/classify?x=%2F", model="labels", input="a")
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("model", "path", "status", "code", "names"),
    [
        ("vectors", "/v1/chat/completions", 400, "task_not_served", ("'vectors' is served at", "/v1/embeddings")),
        ("talk", "/v1/classify", 400, "task_not_served", ("'talk' is served at", "/v1/chat/completions")),
        ("nobody", "/v1/classify", 404, "model_not_found", ("nobody",)),
    ],
)
def test_what_a_model_does_not_do(
    served: Gateway, model: str, path: str, status: int, code: str, names: tuple[str, ...]
) -> None:
    answer = post(served, path, model=model, input="a", messages=[])
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (status, code, "model")
    assert all(name in error["message"] for name in names)


def test_a_worker_outside_of_its_pin_gets_nothing_and_the_status_says_why(served: Gateway) -> None:
    answer = post(served, "/v1/rerank", model="ranks", query="a", documents=["b"])
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_workers")
    assert "outside of its pin" in answer.json()["error"]["message"]
    pool = served.status()["pools"]["ranks"]
    assert pool["eligible"] == []
    (problem,) = pool["outside_of_pin"].values()
    assert problem == "engine_version is 0.32.0, and <0.32 is pinned"
    assert served.status()["pools"]["labels"]["outside_of_pin"] == {}


def test_what_each_engine_is_stands_in_the_status(served: Gateway) -> None:
    engines = {worker["models"][0]: worker["engine"] for worker in served.status()["workers"]}
    for engine in engines.values():
        assert (engine["name"], engine["version"], engine["spec_decode"]) == ("vllm", "0.32.0", False)
    assert "/v1/chat/completions" in engines["talk"]["paths"]
    assert "/classify" in engines["labels"]["paths"]
    assert not {"/v1/classify", "/v1/chat/completions"} & set(engines["labels"]["paths"])
