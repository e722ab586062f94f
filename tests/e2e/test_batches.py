"""`--split-batches`: the same answers, from several workers at once."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from app.commands.simulated import SimulatedFleet
from app.sim.worker.options import WorkerOptions
from tests.e2e.conftest import Gateway
from tests.patience import PATIENCE_S

MODELS = ("embed", "classify", "score")
TEXTS = [f"the card was charged {number} times" for number in range(25)]
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        f"{path} {encoding}": (path, {"model": "embed", "input": TEXTS, "encoding_format": encoding})
        for path in ("/v1/embeddings", "/v1/pooling")
        for encoding in ("float", "base64", "bytes", "bytes_only")
    },
    "token ids": ("/v1/embeddings", {"model": "embed", "input": [[number, 7] for number in range(25)]}),
    "classify": ("/v1/classify", {"model": "classify", "input": TEXTS}),
    "one query": ("/v1/score", {"model": "score", "queries": "a card", "documents": TEXTS}),
    "pairs": ("/score", {"model": "score", "text_1": TEXTS[::-1], "text_2": TEXTS}),
}


@pytest.fixture(scope="module")
def gateways() -> Iterator[tuple[Gateway, Gateway]]:
    """One that cuts, and one that does not, before the same workers: two of each model."""
    workers = [
        WorkerOptions(port=0, served_model_names=(task,), task=task, speed=1000) for task in MODELS for _ in range(2)
    ]
    with SimulatedFleet(workers) as fleet, ExitStack() as stack:
        started = []
        for flags in (("--split-batches", "8"), ()):
            gateway = Gateway("serve", "--worker-urls", ",".join(fleet.urls), "--expose-routing-headers", *flags)
            stack.callback(gateway.end)
            started.append(gateway)
        for gateway in started:
            gateway.listening()
            gateway.until(lambda status: [worker["health"] for worker in status["workers"]] == ["healthy"] * 6)
        yield started[0], started[1]


def steady(text: bytes) -> object:
    """Without what is new with each answer."""
    document = json.loads(text or b"{}")
    return {name: value for name, value in document.items() if name not in ("id", "created")}


@pytest.mark.parametrize("name", ASKED)
def test_on_and_off_are_the_same(gateways: tuple[Gateway, Gateway], name: str) -> None:
    path, body = ASKED[name]
    on, off = (httpx.post(gateway.data + path, json=body, timeout=PATIENCE_S) for gateway in gateways)
    assert (on.status_code, off.status_code) == (200, 200), on.text
    assert len(on.headers["x-warmset-worker"].split(", ")) == 4
    assert len(off.headers["x-warmset-worker"].split(", ")) == 1
    for header in ("content-type", "content-length", "transfer-encoding"):
        assert on.headers.get(header) == off.headers.get(header)
    assert steady(on.headers.get("metadata", "").encode()) == steady(off.headers.get("metadata", "").encode())
    if on.headers["content-type"].startswith("application/json"):
        assert steady(on.content) == steady(off.content)
    else:
        assert on.content == off.content


def test_an_error_in_one_part_is_the_engines_own(gateways: tuple[Gateway, Gateway]) -> None:
    body = {"model": "embed", "input": [[number, 7] for number in range(24)] + [[]]}
    on, off = (httpx.post(gateway.data + "/v1/embeddings", json=body, timeout=PATIENCE_S) for gateway in gateways)
    assert (on.status_code, on.json()) == (off.status_code, off.json())
    assert on.status_code == 400
