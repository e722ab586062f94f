"""What a monitor says of a worker that is well, ill, restarted, slow, silent or hostile."""

import logging
import time
from dataclasses import replace
from typing import Any

import pytest

from app.core.fleet.engine import Engine
from app.core.fleet.events import Event, HealthReported, LoadSampled, WorkerGone, WorkerSeen
from app.core.fleet.registry import Registration, WorkerSource
from app.signals.control import MAX_BODY
from app.signals.fleet import FleetMonitor
from app.signals.inquiry import SERVER_INFO
from app.signals.monitor import PROBE_GAP_S
from tests.patience import FOR_EVER_S, eventually
from tests.signals.scripted import PATHS, SETTINGS, Ear, ScriptedWorker, page


def with_settings(**changed: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("settings", [replace(SETTINGS, **changed)], ids=["*".join(changed)])


def registration(worker: ScriptedWorker, incarnation: str = "r1") -> Registration:
    return Registration("w", worker.url, incarnation, WorkerSource.CONFIG)


def is_healthy(event: Event) -> bool:
    return isinstance(event, HealthReported) and event.healthy


def is_ill(event: Event) -> bool:
    return isinstance(event, HealthReported) and not event.healthy


def is_sample(event: Event) -> bool:
    return isinstance(event, LoadSampled)


def is_seen(event: Event) -> bool:
    return isinstance(event, WorkerSeen)


def is_described(event: Event) -> bool:
    return isinstance(event, WorkerSeen) and bool(event.worker.models)


async def test_a_worker_is_seen_described_and_then_reported(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear
) -> None:
    fleet.watch(registration(worker))
    (first,) = ear.events
    assert isinstance(first, WorkerSeen)
    assert (first.worker.id, first.worker.url) == ("w", worker.url)
    assert (first.worker.incarnation, first.worker.models) == ("r1", {})
    healthy = await ear.hear(is_healthy)
    # Which process it is and what it serves is told before its health is, so that nothing is dropped again at once.
    first, seen, reported = ear.events[:3]
    assert isinstance(seen, WorkerSeen)
    assert (seen.worker.incarnation, seen.worker.engine.version) == ("r1.100.00", "0.32.0")
    assert seen.worker.models == {"m": b'{"id":"m","created":1}'}
    assert reported is healthy
    assert healthy == HealthReported("w", "r1.100.00", healthy=True, reachable=True)


async def test_samples_hold_what_we_had_under_way_when_we_asked(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear
) -> None:
    fleet.watch(registration(worker))
    await ear.hear(is_sample)
    worker.answers["/metrics"] = (200, page(running=3, waiting=2, usage=0.25))
    ear.in_flight["w"] = 4
    await worker.asked_again("/metrics", 1)  # who asks after this has seen the four
    await worker.hold("/metrics")
    before = time.monotonic()
    ear.in_flight["w"] = 9
    ear.forget()
    worker.let_go()
    sampled = await ear.hear(is_sample)
    assert isinstance(sampled, LoadSampled)
    sample = sampled.sample
    assert (sample.running, sample.waiting, sample.kv_usage, sample.own_in_flight) == (3, 2, 0.25, 4)
    assert sample.taken_at <= before
    assert sampled.incarnation == "r1.100.00"


async def test_every_request_carries_the_worker_credential_and_little_else(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear
) -> None:
    cookie = b"HTTP/1.1 200 X\r\ncontent-length: 0\r\nset-cookie: a=b\r\n\r\n"
    worker.answers["/health"] = cookie
    fleet.watch(registration(worker))
    await ear.hear(is_sample)
    for path in ("/health", "/metrics", "/v1/models", "/version"):
        await worker.asked_again(path, 1)
    assert set(worker.heads) == {"/health", "/metrics", "/v1/models", "/version", SERVER_INFO, *PATHS}
    for head in worker.heads.values():
        assert "authorization: Bearer w0rker\r\n" in head
        assert "accept-encoding: identity\r\n" in head
        assert "cookie" not in head


async def test_connections_are_kept(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.signals.control.KEEPALIVE_S", FOR_EVER_S)
    fleet.watch(registration(worker))
    await eventually(lambda: sum(worker.asked.values()) > 12)
    assert worker.connections <= 2


@pytest.mark.parametrize("when", ["after its answer", "at the next request"])
async def test_a_connection_that_the_worker_just_closed_is_no_failure(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear, when: str
) -> None:
    """The worker ends connections without having said so."""
    if when == "after its answer":
        worker.answers["/health"] = b"HTTP/1.1 200 X\r\ncontent-length: 0\r\n\r\n"
        worker.answers["/metrics"] = b"HTTP/1.1 200 X\r\ncontent-length: %d\r\n\r\n" % len(page()) + page()
    else:
        worker.once_per_connection = True
    fleet.watch(registration(worker))
    await ear.hear(is_sample)
    await worker.asked_again("/health", 2)
    await worker.asked_again("/metrics", 4)
    assert not [event for event in ear.of(HealthReported) if not event.healthy]
    assert not fleet.monitors["w"].errors


async def test_a_worker_that_is_not_there_is_unreachable_and_asked_more_often(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear
) -> None:
    await worker.stop()
    fleet.watch(registration(worker))
    ill = await ear.hear(is_ill)
    assert ill == HealthReported("w", "r1", healthy=False, reachable=False)
    assert not [event for event in ear.events if is_sample(event)]
    await worker.start()
    await ear.hear(is_healthy)
    await ear.hear(is_described)


@pytest.mark.parametrize("status", [503, 500, 404, 307, 204, 401])
async def test_a_health_that_is_not_200_is_ill_and_reachable(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear, status: int
) -> None:
    worker.answers["/health"] = (status, b"")
    fleet.watch(registration(worker))
    assert await ear.hear(is_ill) == HealthReported("w", "r1", healthy=False, reachable=True)


async def test_a_worker_that_says_nothing_does_not_hold_up_its_scrapes(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear
) -> None:
    fleet.watch(registration(worker))
    await ear.hear(is_sample)
    await worker.hold("/health")
    ear.forget()
    await eventually(lambda: len(ear.of(LoadSampled)) >= 3)
    assert not ear.of(HealthReported)


@with_settings(health_check_timeout_s=0.4)
async def test_a_worker_that_says_nothing_is_ill_in_time(fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear) -> None:
    worker.answers["/health"] = None
    fleet.watch(registration(worker))
    assert await ear.hear(is_ill) == HealthReported("w", "r1", healthy=False, reachable=True)


@with_settings(health_check_timeout_s=0.4)
async def test_a_worker_that_never_comes_to_an_end_is_given_up_and_found_again(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear
) -> None:
    """No single wait is long, but the whole is: this is no time-out of httpx."""
    worker.drip_s = 0.02
    good = worker.answers["/health"]
    worker.answers["/health"] = b"HTTP/1.1 200 X\r\nx-filler: " + b"y" * 10_000
    fleet.watch(registration(worker))
    assert await ear.hear(is_ill) == HealthReported("w", "r1", healthy=False, reachable=True)
    worker.answers["/health"] = good
    await ear.hear(is_healthy)
    await ear.hear(is_sample)


@with_settings(health_check_interval_s=FOR_EVER_S)
async def test_recovery_is_seen_twice_within_the_short_interval(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing here waits for the long interval: it would not come."""
    monkeypatch.setattr("app.signals.monitor.UNHEALTHY_INTERVAL_S", 0.06)
    worker.answers["/health"] = (503, b"")
    fleet.watch(registration(worker))
    await eventually(lambda: len(ear.of(HealthReported)) >= 4)
    worker.answers["/health"] = (200, b"")
    await eventually(lambda: len([event for event in ear.events if is_healthy(event)]) == 2)


@with_settings(health_check_interval_s=FOR_EVER_S)
async def test_a_probe_that_is_asked_for_comes_at_once_and_many_are_few(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.signals.monitor.UNHEALTHY_INTERVAL_S", 0.06)
    fleet.watch(registration(worker))
    await eventually(lambda: len([event for event in ear.events if is_healthy(event)]) == 2)
    worker.delay_s = 0.02
    before, begun = worker.asked["/health"], time.monotonic()

    def is_asked_enough() -> bool:
        for _ in range(50):
            fleet.probe_now("w")
        return worker.asked["/health"] - before >= 4

    await eventually(is_asked_enough)
    elapsed_s = time.monotonic() - begun
    assert worker.asked["/health"] - before <= 2 + elapsed_s / (PROBE_GAP_S + worker.delay_s)
    assert worker.most_at_once["/health"] == 1
    fleet.probe_now("nobody")


async def test_a_restarted_engine_is_another_incarnation_with_its_own_models(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear
) -> None:
    fleet.watch(registration(worker))
    await ear.hear(is_sample)
    ear.forget()
    worker.answers["/v1/models"] = (200, b'{"data":[{"id":"other"}]}')
    worker.answers["/metrics"] = (200, page(running=1, start=250.5))
    seen = await ear.hear(lambda event: isinstance(event, WorkerSeen) and event.worker.incarnation == "r1.250.50")
    assert isinstance(seen, WorkerSeen)
    assert list(seen.worker.models) == ["other"]
    place = ear.events.index(seen) + 1
    await eventually(lambda: any(is_sample(event) for event in ear.events[place:]))
    after = ear.events[place:]
    assert {event.incarnation for event in after if isinstance(event, HealthReported | LoadSampled)} == {"r1.250.50"}
    assert isinstance(after[0], HealthReported), "the new incarnation is healthy at once"
    fleet.forget("w")
    assert ear.events[-1] == WorkerGone("w", "r1.250.50")


async def test_a_restart_keeps_nothing_of_the_old_process(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear
) -> None:
    fleet.watch(registration(worker))
    await ear.hear(is_sample)
    ear.forget()
    worker.answers["/v1/models"] = (503, b"")
    worker.answers["/metrics"] = (200, page(start=300))
    seen = await ear.hear(is_seen)
    assert isinstance(seen, WorkerSeen)
    assert (seen.worker.incarnation, seen.worker.models) == ("r1.300.00", {})
    # What its own page of metrics says, and nothing that the one before has said.
    assert seen.worker.engine == Engine("vllm", spec_decode=False)
    worker.answers["/v1/models"] = (200, b'{"data":[{"id":"other"}]}')
    ear.forget()
    await ear.hear(is_described)


async def test_a_restart_between_two_questions_keeps_nothing_either(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear
) -> None:
    fleet.watch(registration(worker))
    await ear.hear(is_sample)
    await worker.hold("/version")
    # Its models have been read, and are those of a process that ends now.
    worker.answers["/v1/models"] = (200, b'{"data":[{"id":"other"}]}')
    worker.answers["/metrics"] = (200, page(start=300))
    await worker.asked_again("/metrics", 3)
    ear.forget()
    worker.let_go()
    seen = await ear.hear(is_seen)
    assert isinstance(seen, WorkerSeen)
    assert (seen.worker.incarnation, list(seen.worker.models)) == ("r1.300.00", ["other"])


async def test_a_start_time_that_is_learnt_late_keeps_the_models(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear
) -> None:
    worker.answers["/metrics"] = (500, b"")
    fleet.watch(registration(worker))
    await ear.hear(is_described)
    ear.forget()
    worker.answers["/v1/models"] = (500, b"")
    worker.answers["/metrics"] = (200, page(start=7))
    seen = await ear.hear(is_seen)
    assert isinstance(seen, WorkerSeen)
    assert (seen.worker.incarnation, list(seen.worker.models)) == ("r1.7.00", ["m"])


async def test_several_processes_behind_one_address_do_not_restart_it_for_ever(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.watch(registration(worker))
    await ear.hear(is_sample)
    for start in (200, 100, 200, 100, 200):
        worker.answers["/metrics"] = (200, page(start=start))
        await worker.asked_again("/metrics", 2)
    await ear.hear(lambda event: isinstance(event, LoadSampled) and event.incarnation == "r1")
    ear.forget()
    await worker.asked_again("/v1/models", 2)
    await worker.asked_again("/metrics", 4)
    assert not [event for event in ear.events if is_seen(event)]
    assert {event.incarnation for event in ear.of(LoadSampled)} == {"r1"}
    assert sum("several processes" in record.message for record in caplog.records) == 1


async def test_an_engine_without_these_metrics_is_served_without_samples(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear, caplog: pytest.LogCaptureFixture
) -> None:
    worker.answers["/metrics"] = (200, b"sglang:num_running_reqs 3\n")
    fleet.watch(registration(worker))
    described = await ear.hear(is_described)
    assert isinstance(described, WorkerSeen)
    assert described.worker.incarnation == "r1"
    await eventually(lambda: fleet.monitors["w"].errors["load"] >= 3)
    assert not ear.of(LoadSampled)
    assert sum(record.levelno >= logging.WARNING for record in caplog.records) == 1, "said once"


async def test_models_are_told_again_only_when_they_changed(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear
) -> None:
    fleet.watch(registration(worker))
    await ear.hear(is_described)
    ear.forget()
    worker.answers["/v1/models"] = (200, b'{"data":[{"id":"m","created":2}]}')
    await worker.asked_again("/v1/models", 2)
    assert not ear.of(WorkerSeen), "a time of creation that is made up anew is no change"
    worker.answers["/v1/models"] = (200, b'{"data":[{"id":"m","created":3},{"id":"adapter"}]}')
    seen = await ear.hear(is_seen)
    assert isinstance(seen, WorkerSeen)
    assert list(seen.worker.models) == ["m", "adapter"]
    assert seen.worker.incarnation == "r1.100.00"


HOSTILE = {
    "garbage": b"\x00\xff" * 1000,
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\nconte",
    "endless": b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n" + b"10000\r\n" + b"x" * 65536 + b"\r\n",
    "too large": b"HTTP/1.1 200 X\r\ncontent-length: 5000000\r\n\r\n" + b"x" * 5_000_000,
    "compressed": b"HTTP/1.1 200 X\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc",
    "cut short": b"HTTP/1.1 200 X\r\ncontent-length: 100\r\n\r\nabc",
    "redirect": b"HTTP/1.1 302 X\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
    "not what it should be": b"HTTP/1.1 200 X\r\ncontent-length: 4\r\n\r\nnull",
    "large head": b"HTTP/1.1 200 X\r\n" + b"x-filler: " + b"y" * 200_000 + b"\r\n\r\n",
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("path", ["/metrics", "/v1/models", "/version"])
async def test_a_hostile_answer_disturbs_nothing_else(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear, path: str, name: str
) -> None:
    good = worker.answers[path]
    worker.answers[path] = HOSTILE[name]
    fleet.watch(registration(worker))
    await ear.hear(is_healthy)
    kind = {"/metrics": "load", "/v1/models": "models", "/version": "version"}[path]
    errors = fleet.monitors["w"].errors
    await eventually(lambda: errors[kind] > 0)
    assert not errors["health"]
    worker.answers[path] = good
    await ear.hear(is_sample)
    await ear.hear(is_described)


@pytest.mark.parametrize("path", ["/metrics", "/v1/models", "/version", "/health"])
async def test_an_answer_that_is_right_but_too_large_is_not_taken(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear, path: str
) -> None:
    answer = worker.answers[path]
    assert isinstance(answer, tuple)
    worker.answers[path] = (200, answer[1] + b" " * (MAX_BODY + 1))
    fleet.watch(registration(worker))
    kind = {"/metrics": "load", "/v1/models": "models", "/version": "version", "/health": "health"}[path]
    await eventually(lambda: fleet.monitors["w"].errors[kind] > 1)
    assert fleet.monitors["w"].metrics is None or path != "/metrics"
    assert not fleet.monitors["w"].worker.models or path != "/v1/models"
    worker.answers[path] = answer
    await ear.hear(is_sample)
    await ear.hear(is_described)


async def test_what_cannot_be_used_as_a_url_is_unreachable(fleet: FleetMonitor, ear: Ear) -> None:
    for number, url in enumerate(["http://[", "ftp://h", "http://h:port", "http://127.0.0.1:1\r\n"]):
        fleet.watch(Registration(str(number), url, "r", WorkerSource.ADMIN))
        ill = await ear.hear(lambda event, number=number: is_ill(event) and event.worker_id == str(number))  # type: ignore[misc]
        assert isinstance(ill, HealthReported)
        assert not ill.reachable


async def test_an_emit_that_fails_ends_no_loop(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.watch(registration(worker))
    await ear.hear(is_sample)
    events, ear.events = ear.events, None  # type: ignore[assignment]
    await worker.asked_again("/metrics", 4)
    await worker.asked_again("/health", 2)
    ear.events = events
    ear.forget()
    await ear.hear(is_sample)
    await ear.hear(is_healthy)
    assert 1 <= sum("a turn of watching" in record.message for record in caplog.records) <= 2, "once for each loop"
    caplog.clear()


async def test_what_it_serves_is_asked_once_for_each_process(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear
) -> None:
    worker.answers["/pooling"] = worker.answers["/tokenize"] = (405, b"")
    worker.answers["/v1/embeddings"] = (401, b"")
    worker.answers[SERVER_INFO] = (200, b'{"vllm_config":{"model_config":{"revision":"abc"}}}')
    fleet.watch(registration(worker))
    seen = await ear.hear(is_described)
    assert isinstance(seen, WorkerSeen)
    # 405: it is there. 404: it is not. Anything else cannot be told, and is left to the worker.
    paths = frozenset({"/pooling", "/tokenize", "/v1/embeddings"})
    assert seen.worker.engine == Engine("vllm", "0.32.0", "abc", False, paths)
    await worker.asked_again("/v1/models", 3)
    assert [worker.asked[path] for path in PATHS] == [1] * len(PATHS)
    # Another process may serve something else.
    worker.answers["/classify"] = (405, b"")
    worker.answers["/metrics"] = (200, page(start=300))
    await eventually(lambda: fleet.monitors["w"].worker.engine.paths == paths | {"/classify"})
    assert fleet.monitors["w"].worker.incarnation == "r1.300.00"


async def test_one_that_cannot_be_asked_what_it_serves_is_taken_to_serve_all(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear
) -> None:
    fleet.watch(registration(worker))
    seen = await ear.hear(is_described)
    assert isinstance(seen, WorkerSeen)
    assert seen.worker.engine.paths == frozenset(), "each answered 404, which only says that it knows no GET there"


async def test_what_it_serves_is_asked_again_when_it_did_not_say(
    fleet: FleetMonitor, worker: ScriptedWorker, ear: Ear
) -> None:
    worker.answers["/pooling"] = (405, b"")
    worker.answers[PATHS[-1]] = b"no HTTP\r\n\r\n"
    fleet.watch(registration(worker))
    await ear.hear(is_healthy)
    await eventually(lambda: fleet.monitors["w"].errors["paths"] > 1)
    assert fleet.monitors["w"].worker.engine.paths == frozenset()
    worker.answers[PATHS[-1]] = (404, b"")
    await eventually(lambda: fleet.monitors["w"].worker.engine.paths == {"/pooling"})
