"""The metrics listener's application."""

import logging

import httpx
import pytest

from app.api.monitoring import Monitoring


async def exposition(accept: str) -> tuple[bytes, str]:
    return f"accept={accept}\n".encode(), "text/plain; version=0.0.4"


def client(problem: str | None = None, exposition=exposition) -> httpx.AsyncClient:
    app = Monitoring(exposition, lambda: problem)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1")


async def test_metrics_in_the_format_that_is_asked_for() -> None:
    async with client() as http:
        answer = await http.get("/metrics", headers={"accept": "application/openmetrics-text"})
    assert answer.status_code == 200
    assert answer.text == "accept=application/openmetrics-text\n"
    assert answer.headers["content-type"] == "text/plain; version=0.0.4"
    assert answer.headers["content-length"] == str(len(answer.content))


async def test_metrics_that_fail_are_an_answer_and_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(accept: str) -> tuple[bytes, str]:
        raise KeyError("gone")

    async with client(exposition=broken) as http:
        answer = await http.get("/metrics")
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal_error"
    assert "gone" not in answer.text
    assert caplog.record_tuples == [("warmset.monitoring", logging.ERROR, "metrics could not be collected")]


@pytest.mark.parametrize("problem", [None, "no worker is healthy yet"])
async def test_live_whatever_happens_and_ready_when_it_is(problem: str | None) -> None:
    async with client(problem) as http:
        live, ready = await http.get("/livez"), await http.get("/readyz")
    assert (live.status_code, live.json()) == (200, {"status": "live"})
    if problem is None:
        assert (ready.status_code, ready.json()) == (200, {"status": "ready"})
    else:
        assert (ready.status_code, ready.json()) == (503, {"status": "not ready", "because": problem})


@pytest.mark.parametrize("path", ["/", "/metrics/", "/v1/models", "/workers", "//metrics"])
async def test_everything_else_is_not_found(path: str) -> None:
    async with client() as http:
        answer = await http.get(f"http://127.0.0.1{path}")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "unknown_path"


async def test_methods() -> None:
    async with client() as http:
        posted, head = await http.post("/metrics"), await http.head("/livez")
    assert posted.status_code == 405
    assert posted.headers["allow"] == "GET, HEAD"
    assert head.status_code == 200


async def test_only_http_is_spoken() -> None:
    async def receive() -> dict[str, object]:
        raise AssertionError("not asked")

    async def send(message: object) -> None:
        raise AssertionError("not answered")

    await Monitoring(exposition, lambda: None)({"type": "websocket", "path": "/livez"}, receive, send)
