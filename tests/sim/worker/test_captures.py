"""Every captured answer of a running vLLM 0.32.0 is imitated by the simulated worker, or listed here with the reason.

The captures are in tests/sim/data/vllm/captured; see the README there.
"""

import json
import re
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest

from app.sim.worker.options import WorkerOptions
from app.sim.worker.server import GRACE_S
from tests.patience import PATIENCE_S, until
from tests.sim.conftest import METRICS, OMITTED_METRICS
from tests.sim.worker.shapes import CAPTURED, Answer, differences, load, send

KINDS = ("generate", "keyed", "embed", "classify", "score")
NAMES = (CAPTURED / "names.txt").read_text().split()
EXCHANGES = {exchange["name"]: (kind, exchange) for kind in KINDS for exchange in load(CAPTURED, kind)}

_LORA = "no adapters: a simulated worker has no weights to adapt"
_DEVELOPMENT = "a path of the server's development mode (VLLM_SERVER_DEV_MODE), which changes or stops a worker"
_ENGINE_DEATH = "vLLM's engine is a process of its own and can die alone; a simulated worker is one process"
_DRAIN = "vLLM's --shutdown-timeout is not simulated: a worker that is stopped ends its streams"
_KV_EVENTS = "no KV events: there is no publisher"
_NO_ANSWER = "not an answer but"

NOT_IMITATED = {
    "lora_load": _LORA,
    "lora_load_again": _LORA,
    "lora_load_bad": _LORA,
    "lora_load_missing": _LORA,
    "lora_unload": _LORA,
    "lora_unload_again": _LORA,
    "lora_completion": _LORA,
    "lora_models": _LORA,
    "pause": _DEVELOPMENT,
    "resume": _DEVELOPMENT,
    "is_paused": _DEVELOPMENT,
    "reset_prefix_cache": _DEVELOPMENT,
    "sleep_l1": _DEVELOPMENT,
    "sleep_chat_while_asleep": _DEVELOPMENT,
    "wake_up": _DEVELOPMENT,
    "crash_stream": _ENGINE_DEATH,
    "crash_nonstream": _ENGINE_DEATH,
    "crash_health": _ENGINE_DEATH,
    "crash_worker_killed": _ENGINE_DEATH,
    "sigterm_drain20": _DRAIN,
    "term_drain_stream": _DRAIN,
    "kv_event_sources": _KV_EVENTS,
    "kv_events": _KV_EVENTS,
    "openapi": "no OpenAPI document; test_routes.py compares the paths",
    "embeddings_chat": "MiniLM's tokenizer has no chat template, the simulated one has",
    "openai_sdk": f"{_NO_ANSWER} what the SDK made of some; test_openai.py runs the SDK",
    "openai_sdk_embeddings": f"{_NO_ANSWER} what the SDK made of some; test_openai.py runs the SDK",
    "overload_A": f"{_NO_ANSWER} speeds measured under load",
    "overload_N_metrics": f"{_NO_ANSWER} a part of /metrics, of speculative decoding, which is not simulated",
    "sigterm": f"{_NO_ANSWER} the times around term_stream",
    "vllm_metric_names": f"{_NO_ANSWER} the names in all captures of /metrics",
}
# Their requests name a token that is outside vLLM's vocabulary but inside the larger simulated one.
OUT_OF_VOCABULARY = {"err_logprob_token_ids_oov": ("999999]", "999999999]")}
# Refusals whose text holds a number that is a model's own.
WORDED_FREELY = ("err_logprob_token_ids_oov",)

Start = Callable[[WorkerOptions], Any]

SLOW = WorkerOptions(port=0, served_model_names=("tiny",), speed=0.1)
"""Its answers last for minutes: one that ends before has not come to its own end."""


def overloaded(exchange: dict[str, Any], start: Start) -> Answer:
    """To a worker whose queue is full."""
    with (
        start(replace(SLOW, max_num_queued_reqs=1)) as worker,
        httpx.stream("POST", f"{worker.url}/v1/chat/completions", json=LONG),
    ):
        worker.wait_for_metric("vllm:num_requests_running", 1)
        return send(worker.url, exchange)


def stopped(exchange: dict[str, Any], start: Start) -> Answer:
    """To a worker that gets SIGTERM while the answer is streamed."""
    with (
        start(SLOW) as worker,
        httpx.stream("POST", worker.url + exchange["path"], json=json.loads(exchange["body"])) as answer,
    ):
        stream = answer.iter_raw()
        first = next(stream) + next(stream)
        worker.process.send_signal(signal.SIGTERM)
        whole = first + b"".join(stream)
        return Answer.of(answer, whole)


def arriving_late(exchange: dict[str, Any], start: Start) -> Answer:
    """To a worker that gets SIGTERM while the request is sent."""
    return until(lambda: _arriving_late(exchange, start))


def _arriving_late(exchange: dict[str, Any], start: Start) -> Answer | None:
    """None where the machine was so slow that the worker may have given up."""
    body = exchange["body"].encode()
    head = f"POST {exchange['path']} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nexpect: 100-continue\r\n"
    with start(SLOW) as worker:
        host, port = worker.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
            connection.sendall(head.encode() + b"content-length: %d\r\n\r\n" % len(body))
            assert connection.recv(100).startswith(b"HTTP/1.1 100 "), "it waits for the rest"
            began = time.monotonic()
            worker.process.send_signal(signal.SIGTERM)
            until(lambda: not is_listening(host, int(port)))
            connection.sendall(body)
            if time.monotonic() - began > GRACE_S / 2:
                return None
            status, _, rest = connection.makefile("rb").read().partition(b"\r\n")
        return Answer(int(status.split()[1]), [], rest.partition(b"\r\n\r\n")[2])


def is_listening(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port)).close()
    except OSError:
        return False
    return True


LONG = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 4000, "stream": True}
# Answers that need more than a request.
SCENES = {"overload_N_maxqueued4": overloaded, "term_stream": stopped, "term_drain_new": arriving_late}


@pytest.mark.parametrize("name", NAMES)
def test_answer_is_as_captured(name: str, worker_of: Callable[[str], Any], start: Start) -> None:
    if name not in EXCHANGES:
        assert name in NOT_IMITATED
        return
    kind, exchange = EXCHANGES[name]
    for shown, sent in [OUT_OF_VOCABULARY[name]] if name in OUT_OF_VOCABULARY else []:
        assert shown in exchange["body"]
        exchange = {**exchange, "body": exchange["body"].replace(shown, sent)}
    answer = SCENES[name](exchange, start) if name in SCENES else send(worker_of(kind).url, exchange)
    found = differences(exchange, answer, worded=name not in WORDED_FREELY)
    if exchange["path"] == "/metrics":
        found += differing_metrics(name, answer.content.decode())
    if name in NOT_IMITATED:
        assert found, "it is imitated: take it out of the table"
    else:
        assert not found


def differing_metrics(name: str, text: str) -> list[str]:
    """Families that are not as in a capture of /metrics, but for those that are not simulated."""
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    expected = {
        family: kind
        for family, (kind, _) in METRICS["families"].items()
        if family not in METRICS["absent"][name] and not family.startswith(OMITTED_METRICS)
    }
    return [] if types == expected else [f"families {types.items() ^ expected.items()}"]


def test_the_table_names_captures_only() -> None:
    assert set(NOT_IMITATED) <= set(NAMES)
    assert set(EXCHANGES) <= set(NAMES)
    assert set(SCENES) <= set(EXCHANGES) - set(NOT_IMITATED)
