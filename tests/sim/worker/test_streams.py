"""Streams that no capture shows: several answers at once, prompts in parallel, Anthropic's events."""

import json
from collections.abc import Callable
from typing import Any

import httpx

MESSAGES = [{"role": "user", "content": "hello"}]


def test_two_answers_in_one_stream_are_the_two_of_the_whole(worker_of: Callable[[str], Any]) -> None:
    url = f"{worker_of('generate').url}/v1/chat/completions"
    body = {"model": "tiny", "messages": MESSAGES, "max_tokens": 9, "n": 2}
    whole = [choice["message"]["content"] for choice in httpx.post(url, json=body).json()["choices"]]
    lines = httpx.post(url, json={**body, "stream": True}).text.split("\n\n")
    choices = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines if line.startswith("data: {")]
    assert [choice["index"] for choice in choices[:2]] == [0, 1]
    assert all(choice["delta"].get("role") == "assistant" for choice in choices[:2])
    for index in (0, 1):
        own = [choice for choice in choices if choice["index"] == index]
        assert "".join(choice["delta"]["content"] for choice in own) == whole[index]
        assert [choice["finish_reason"] for choice in own if choice["finish_reason"]] == ["length"]
    assert whole[0] != whole[1]


def test_prompts_of_one_request_are_answered_in_their_places(worker_of: Callable[[str], Any]) -> None:
    url = f"{worker_of('generate').url}/v1/completions"
    body = {"model": "tiny", "prompt": ["one", "two"], "max_tokens": 6, "n": 2}
    whole = [choice["text"] for choice in httpx.post(url, json=body).json()["choices"]]
    alone = [
        choice["text"]
        for prompt in ("one", "two")
        for choice in httpx.post(url, json={**body, "prompt": prompt}).json()["choices"]
    ]
    assert whole == alone
    text = dict.fromkeys(range(4), "")
    for line in httpx.post(url, json={**body, "stream": True}).text.split("\n\n"):
        if line.startswith("data: {"):
            choice = json.loads(line.removeprefix("data: "))["choices"][0]
            text[choice["index"]] += choice["text"]
    assert list(text.values()) == whole


def test_anthropics_events_carry_the_same_text(worker_of: Callable[[str], Any]) -> None:
    url = f"{worker_of('generate').url}/v1/messages"
    body = {"model": "tiny", "messages": MESSAGES, "max_tokens": 5, "system": "be brief"}
    whole = httpx.post(url, json=body).json()
    blocks = httpx.post(url, json={**body, "stream": True}).text.strip().split("\n\n")
    events = [json.loads(block.split("\ndata: ")[1]) for block in blocks]
    assert [block.split("\n")[0] for block in blocks] == [f"event: {event['type']}" for event in events]
    deltas = [event for event in events if event["type"] == "content_block_delta"]
    kinds = [event["type"] for event in events if event not in deltas]
    assert kinds == ["message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"]
    assert "".join(event["delta"]["text"] for event in deltas) == whole["content"][0]["text"]
    assert events[-2]["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    assert whole["stop_reason"] == "max_tokens"
    assert events[-2]["usage"]["output_tokens"] == whole["usage"]["output_tokens"] == 5


def test_anthropics_refusals_have_its_shape(worker_of: Callable[[str], Any]) -> None:
    url = f"{worker_of('generate').url}/v1/messages"
    answer = httpx.post(url, json={"model": "nope", "messages": MESSAGES, "max_tokens": 5})
    assert answer.status_code == 404
    assert (answer.json()["type"], answer.json()["error"]["type"]) == ("error", "NotFoundError")
