"""A worker that dies under load takes down only what it was answering. This file runs last: it costs a worker."""

import asyncio
import json
from dataclasses import dataclass, field

import httpx

from tests.vllm.process import ServerProcess
from tests.vllm.workers import CHAT_MODEL, CLASSIFIER, EMBEDDING_MODEL, Workers

STREAMS = 12
LENGTH = 400
SHORT = 8
END = "[DONE]"


@dataclass(slots=True)
class Stream:
    """What one client got: the worker that served it, and the events in order. `began` is set by the first token."""

    number: int
    worker: str = ""
    events: list[str] = field(default_factory=list)
    began: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def text(self) -> str:
        choices = (choice for data in self._data() for choice in data.get("choices", ()))
        return "".join(choice["delta"].get("content") or "" for choice in choices)

    @property
    def completion_tokens(self) -> int | None:
        """As the worker counted them in its last event before the end mark."""
        return next((data["usage"]["completion_tokens"] for data in self._data() if data.get("usage")), None)

    def _data(self) -> list[dict]:
        return [json.loads(event) for event in self.events if event != END]


def body(number: int, length: int, **more: object) -> dict[str, object]:
    messages = [{"role": "user", "content": f"Section {number} of the License"}]
    return {
        "model": CHAT_MODEL,
        "messages": messages,
        "max_tokens": length,
        "ignore_eos": True,
        "temperature": 0,
    } | more


async def follow(client: httpx.AsyncClient, stream: Stream) -> None:
    asked = body(stream.number, LENGTH, stream=True, stream_options={"include_usage": True})
    async with client.stream("POST", "/v1/chat/completions", json=asked) as response:
        assert response.status_code == 200
        stream.worker = response.headers["x-warmset-worker"]
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                stream.events.append(line.removeprefix("data: "))
                if len(stream.events) == 2:  # the first has only the role
                    stream.began.set()


async def whole_answer(client: httpx.AsyncClient, number: int) -> str:
    answer = await client.post("/v1/chat/completions", json=body(number, LENGTH))
    return answer.json()["choices"][0]["message"]["content"]


async def test_killed_worker_takes_only_its_own_requests(live_workers: Workers, live_gateway: ServerProcess) -> None:
    doomed, survivor = live_workers.chat
    streams = [Stream(number) for number in range(STREAMS)]

    async with httpx.AsyncClient(base_url=live_gateway.url, timeout=60) as client:
        async with asyncio.TaskGroup() as group:
            for stream in streams:
                group.create_task(follow(client, stream))
            for stream in streams:
                await stream.began.wait()
            await asyncio.to_thread(doomed.kill)
            # At once, before a probe can tell the gateway: who is sent to the dead worker is sent on to the other.
            after = [
                group.create_task(client.post("/v1/chat/completions", json=body(number, SHORT)))
                for number in range(STREAMS)
            ]
        for answer in (task.result() for task in after):
            assert answer.status_code == 200
            assert live_workers.by_id(answer.headers["x-warmset-worker"]) is survivor
            assert answer.json()["usage"]["completion_tokens"] == SHORT

    broken = [stream for stream in streams if live_workers.by_id(stream.worker) is doomed]
    others = [stream for stream in streams if live_workers.by_id(stream.worker) is survivor]
    assert broken, "no stream was on the killed worker"
    assert others, "no stream was on the other worker"

    async with httpx.AsyncClient(base_url=survivor.url, timeout=60) as direct:
        answers = await asyncio.gather(*(whole_answer(direct, stream.number) for stream in streams))
    for stream in others:
        assert stream.events[-1] == END
        assert stream.completion_tokens == LENGTH
        assert stream.text == answers[stream.number]
    for stream in broken:
        assert END not in stream.events
        *before, last = stream.events
        assert json.loads(last)["error"]["code"] == "worker_stream_broken"
        assert not any("error" in json.loads(event) for event in before)
        # What arrived until then is valid.
        assert stream.text != ""
        assert answers[stream.number].startswith(stream.text.rstrip("\N{REPLACEMENT CHARACTER}"))


def test_gateway_serves_on(live_workers: Workers, live_gateway: ServerProcess) -> None:
    with httpx.Client(base_url=live_gateway.url, timeout=60) as client:
        assert client.get("/health").status_code == 200
        models = {model["id"] for model in client.get("/v1/models").json()["data"]}
        assert models == {CHAT_MODEL, EMBEDDING_MODEL, CLASSIFIER}
        for number in range(STREAMS):
            answer = client.post("/v1/chat/completions", json=body(number, SHORT))
            assert answer.status_code == 200
            assert live_workers.by_id(answer.headers["x-warmset-worker"]) is live_workers.chat[1]
