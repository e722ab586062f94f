"""A worker has the paths that vLLM registers for its task, and no other: a router may find out by a GET."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from app.api.endpoints import SERVICES
from app.core.fleet.service import Task
from app.sim.worker.app import App
from app.sim.worker.http import Exchange, Message, Route
from app.sim.worker.options import WorkerOptions
from app.sim.worker.simulated import SimulatedWorker
from tests.sim.worker.shapes import RECORDED

# As vLLM's own registration has them, by tests/vllm/frontend.py.
ROUTES: dict[str, dict[str, list[str]]] = json.loads((RECORDED / "routes.json").read_text())
PATHS = sorted({path for routes in ROUTES.values() for path in routes})

_PAGES = "documentation for people and for generators of clients"
_STORE = "responses are not stored"
NOT_SERVED = {
    "/docs": _PAGES,
    "/docs/oauth2-redirect": _PAGES,
    "/redoc": _PAGES,
    "/openapi.json": _PAGES,
    "/v1/responses/{response_id}": _STORE,
    "/v1/responses/{response_id}/cancel": _STORE,
    "/invocations": "SageMaker's second way to the other paths",
    "/v1/systemone": "questions about a state, read off a model's next token",
    "/scale_elastic_ep": "a worker has one size",
    "/is_scaling_elastic_ep": "a worker has one size",
}


@pytest.mark.parametrize("kind", ROUTES)
@pytest.mark.parametrize("path", PATHS)
def test_a_get_tells_what_is_served(kind: str, path: str, worker_of: Callable[[str], Any]) -> None:
    methods = [] if path in NOT_SERVED else ROUTES[kind].get(path, [])
    answer = httpx.get(worker_of(kind).url + path)
    if not methods:
        assert (answer.status_code, answer.json()) == (404, {"detail": "Not Found"})
    elif "GET" in methods:
        assert answer.status_code == 200
    else:
        assert (answer.status_code, answer.json()) == (405, {"detail": "Method Not Allowed"})
        assert answer.headers["allow"] == ", ".join(methods)


def test_what_the_gateway_passes_on_is_served_by_some_worker() -> None:
    served = set(PATHS) - set(NOT_SERVED)
    services = [service for service in SERVICES.values() if service.task is not Task.TRANSCRIBE]  # it hears nothing
    assert all(not served.isdisjoint(service.spellings) for service in services)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/nothing", "/v2/embed", "/inference/v1/generate"])
@pytest.mark.parametrize("given", [None, "sekret", "Bearer wrong", "Basic sekret"])
def test_a_key_guards_the_paths_that_vllm_guards(path: str, given: str | None, worker_of: Callable[[str], Any]) -> None:
    headers = {} if given is None else {"authorization": given}
    answer = httpx.get(worker_of("keyed").url + path, headers=headers)
    assert (answer.status_code, answer.json()) == (401, {"error": "Unauthorized"})


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_key_opens_them(scheme: str, worker_of: Callable[[str], Any]) -> None:
    headers = {"authorization": f"{scheme} sekret"}
    assert httpx.get(f"{worker_of('keyed').url}/v1/models", headers=headers).status_code == 200


async def test_a_fault_of_the_worker_is_told_as_vllm_tells_its_own() -> None:
    async def fail(exchange: Exchange, worker: SimulatedWorker) -> None:
        raise LookupError("no such thing")

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError("nothing to read")

    app = App(SimulatedWorker(WorkerOptions()), [Route("GET", "/fault", fail)])
    with pytest.raises(LookupError):
        await app({"type": "http", "method": "GET", "path": "/fault", "headers": []}, receive, send)
    assert sent[0]["status"] == 500
    error = {"message": "no such thing", "type": "InternalServerError", "param": None, "code": 500}
    assert json.loads(sent[1]["body"]) == {"error": error}
