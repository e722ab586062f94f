"""The worker under load and with clients that go away: limits, aborts, pace."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from app.sim.engine import PROFILES, Engine, EngineRequest, EngineSettings
from app.sim.worker.driver import EngineDriver
from app.sim.worker.errors import ApiError
from app.sim.worker.observations import Observations
from app.sim.worker.options import WorkerOptions
from tests.patience import eventually, soon

PROFILE = PROFILES["llama33-70b-fp8-h100-tp8"]
SLOW = WorkerOptions(port=0, served_model_names=("tiny",), speed=1.0, max_num_seqs=2, max_num_queued_reqs=4)
LONG = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 60_000}
"""Nearly ten minutes: what ends before has not come to its own end."""


@pytest.fixture(scope="module")
def slow() -> Iterator[Any]:
    from tests.sim.conftest import running

    with running(SLOW) as worker:
        yield worker


async def test_news_between_two_waits_is_not_missed() -> None:
    engine = Engine(EngineSettings(PROFILE))
    driver = EngineDriver(engine, Observations(engine, "m"), speed=float("inf"))
    generation = driver.submit([EngineRequest(4, 1)], streams=True)
    generation.wake()
    generation.wake()
    await soon(generation.progress())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(generation.progress(), 0.02)


async def test_closing_ends_what_runs_and_refuses_what_comes() -> None:
    engine = Engine(EngineSettings(PROFILE))
    driver = EngineDriver(engine, Observations(engine, "m"), speed=1.0)
    generation = driver.submit([EngineRequest(4, 1000)], streams=False)
    driver.close()
    await soon(generation.end())
    assert generation.requests[0].finish_reason == "abort"
    with pytest.raises(ApiError, match="after shutdown"):
        driver.submit([EngineRequest(4, 1)], streams=False)


async def until(worker: Any, name: str, value: float) -> None:
    await asyncio.to_thread(worker.wait_for_metric, name, value)


async def test_beyond_the_queue_limit_everybody_is_told_to_go_elsewhere(slow: Any) -> None:
    rejected = slow.metric("vllm:admission_rejections_total", "max_num_queued_reqs")
    async with httpx.AsyncClient(base_url=slow.url) as client:
        tasks = [asyncio.create_task(client.post("/v1/chat/completions", json=LONG)) for _ in range(4)]
        await until(slow, "vllm:num_requests_running", 2)
        await until(slow, "vllm:num_requests_waiting", 2)
        answer = await client.post("/v1/chat/completions", json={**LONG, "stream": True})
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert answer.status_code == 503
    assert answer.json() == {
        "error": {
            "message": "The engine is currently busy and cannot accept new requests. "
            "Please try again later or on a different instance.",
            "type": "Service Unavailable",
            "param": None,
            "code": 503,
        }
    }
    assert slow.metric("vllm:admission_rejections_total", "max_num_queued_reqs") == rejected + 1
    await until(slow, "vllm:num_requests_running", 0)
    await until(slow, "vllm:num_requests_waiting", 0)


@pytest.mark.parametrize("moment", ["whole", "before the first token", "in the stream"])
async def test_a_client_that_goes_away_frees_the_engine(slow: Any, moment: str) -> None:
    body = dict(LONG)
    if moment != "whole":
        body["stream"] = True
    if moment == "before the first token":
        body["messages"] = [{"role": "user", "content": "word " * 30_000}]  # a prefill of seconds
    aborted = slow.metric("vllm:request_success_total")
    async with httpx.AsyncClient(base_url=slow.url) as client:

        async def ask() -> None:
            async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
                async for _ in answer.aiter_lines():
                    pass

        task = asyncio.create_task(ask())
        await until(slow, "vllm:num_requests_running", 1)
        if moment == "in the stream":
            await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await until(slow, "vllm:num_requests_running", 0)
    assert slow.metric("vllm:kv_cache_usage_perc") == 0
    assert slow.metric("vllm:request_success_total") == aborted


async def test_more_answers_than_the_limit_has_room_for_leave_nothing_behind(slow: Any) -> None:
    async with httpx.AsyncClient(base_url=slow.url) as client:
        answer = await client.post("/v1/chat/completions", json={**LONG, "n": 5})
    assert answer.status_code == 503
    await until(slow, "vllm:num_requests_running", 0)
    assert slow.metric("vllm:num_requests_waiting") == 0


async def test_tokens_come_at_the_measured_pace(slow: Any) -> None:
    """Batch 1 of the TP8 profile: 9.5 ms per token, so 80 further tokens take 0.75 s, and never less.

    A machine that is busy makes it more, but not each time, or not so much that a driver which lost time would do it.
    """
    async with httpx.AsyncClient(base_url=slow.url) as client:

        async def is_on_time() -> bool:
            began = time.monotonic()
            await client.post("/v1/chat/completions", json={**LONG, "max_tokens": 80})
            took = time.monotonic() - began
            assert took > 0.74
            return took < 1.5

        await eventually(is_on_time)


async def test_many_at_once_all_get_their_own_answer(worker_of: Callable[[str], Any]) -> None:
    worker = worker_of("generate")
    async with httpx.AsyncClient(base_url=worker.url) as client:

        async def ask(number: int) -> tuple[str, int]:
            body = {**LONG, "messages": [{"role": "user", "content": f"question {number}"}], "max_tokens": 5 + number}
            answer = (await client.post("/v1/chat/completions", json=body)).json()
            return answer["choices"][0]["message"]["content"], answer["usage"]["completion_tokens"]

        first = await asyncio.gather(*(ask(number) for number in range(20)))
        again = await asyncio.gather(*(ask(number) for number in range(20)))
    assert first == again
    assert [tokens for _, tokens in first] == [5 + number for number in range(20)]
    assert len({text for text, _ in first}) == 20
