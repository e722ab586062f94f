"""Which workers of a model may serve a request: by path, by task, by how they decode, by what is pinned."""

import random
from typing import Any

import pytest

from app.api.endpoints import ENDPOINTS, SERVICES
from app.core.fleet.commands import Dispatch, Refuse
from app.core.fleet.engine import Engine
from app.core.fleet.events import HealthReported, RequestArrived, WorkerSeen
from app.core.fleet.pin import Pin
from app.core.fleet.reasons import ChoiceReason, RefusalReason
from app.core.fleet.request import RequestFacts
from app.core.fleet.worker import Worker
from app.core.overload.health import HealthThresholds
from app.core.overload.marks import RAMP_S
from app.core.overload.settings import OverloadSettings
from app.core.router import Router
from app.core.routing.policies import POLICIES, make_policy

BARE_VLLM = frozenset({"/classify", "/pooling", "/tokenize"})
DYNAMO = frozenset({"/v1/classify", "/v1/pooling"})


class Pool:
    """Workers of one model "m", healthy as they come, and a router over them."""

    def __init__(self, policy: str = "round_robin", **pins: Pin) -> None:
        self.router = Router(
            make_policy(policy), random.Random(0), OverloadSettings(HealthThresholds(failures=1, successes=1)), pins
        )
        self.now = 0.0

    def tell(self, event: Any) -> Any:
        self.now += 1
        return self.router.handle(event, self.now)

    def add(self, name: str, engine: Engine) -> None:
        self.tell(WorkerSeen(Worker(name, f"http://{name}", "1", {"m": b"{}"}, engine)))
        self.report(name, healthy=True)

    def report(self, name: str, *, healthy: bool) -> None:
        self.tell(HealthReported(name, "1", healthy=healthy, reachable=healthy))

    def ask(self, path: str, *, needs_logits: bool = False) -> Any:
        facts = RequestFacts("r", "m", path, service=SERVICES[path], needs_logits=needs_logits)
        return self.tell(RequestArrived(facts))[-1]

    def served_by(self, path: str, times: int = 12, *, needs_logits: bool = False) -> set[str]:
        verdicts = [self.ask(path, needs_logits=needs_logits) for _ in range(times)]
        assert all(isinstance(verdict, Dispatch) for verdict in verdicts), verdicts
        return {verdict.worker.id for verdict in verdicts}


@pytest.mark.parametrize("policy", [policy.name for policy in POLICIES])
def test_a_request_goes_to_those_that_serve_its_path_in_one_of_its_spellings(policy: str) -> None:
    pool = Pool(policy)
    pool.add("bare", Engine(paths=BARE_VLLM))
    pool.add("dynamo", Engine(paths=DYNAMO))
    assert pool.served_by("/tokenize") == {"bare"}
    for path in ("/classify", "/v1/classify"):
        assert pool.served_by(path, 40) <= {"bare", "dynamo"}
    assert pool.served_by("/classify", 40) == {"bare", "dynamo"} or policy == "consistent_hash"


def test_the_workers_own_spelling() -> None:
    for asked, paths, told in [
        ("/v1/classify", BARE_VLLM, "/classify"),
        ("/classify", DYNAMO, "/v1/classify"),
        ("/classify", BARE_VLLM, "/classify"),
        ("/v2/rerank", frozenset({"/v1/rerank", "/v2/rerank", "/rerank"}), "/v2/rerank"),
        ("/v1/rerank", frozenset({"/rerank"}), "/rerank"),
        ("/v1/classify", frozenset[str](), "/v1/classify"),
    ]:
        assert Engine(paths=paths).path_of(SERVICES[asked]) == told


def test_a_path_of_the_task_that_nobody_serves_is_not_found_and_names_those_that_are() -> None:
    pool = Pool()
    pool.add("old", Engine(paths=frozenset({"/v1/embeddings"})))
    refused = pool.ask("/v2/embed")
    assert refused == Refuse(RefusalReason.PATH_NOT_SERVED, "'m' is served at /v1/embeddings")


def test_a_task_that_nobody_does_is_a_bad_request() -> None:
    pool = Pool()
    pool.add("a", Engine(paths=BARE_VLLM))
    refused = pool.ask("/v1/chat/completions")
    assert refused == Refuse(RefusalReason.TASK_NOT_SERVED, "generate; 'm' is served at /classify, /pooling, /tokenize")


def test_who_does_not_say_what_it_serves_is_asked_for_everything() -> None:
    pool = Pool()
    pool.add("known", Engine(paths=BARE_VLLM))
    pool.add("silent", Engine())
    assert pool.served_by("/v1/chat/completions") == {"silent"}
    assert pool.served_by("/classify") == {"known", "silent"}


def test_what_is_learnt_late_counts_from_then_on() -> None:
    pool = Pool()
    pool.add("w", Engine())
    assert pool.served_by("/v1/chat/completions") == {"w"}
    pool.add("w", Engine(paths=BARE_VLLM))
    assert pool.ask("/v1/chat/completions").reason is RefusalReason.TASK_NOT_SERVED


def test_a_lane_whose_workers_all_fail_is_tried_and_no_other_worker_is() -> None:
    pool = Pool()
    pool.add("bare", Engine(paths=BARE_VLLM))
    pool.add("dynamo", Engine(paths=DYNAMO))
    pool.report("bare", healthy=False)
    verdict = pool.ask("/tokenize")
    assert (verdict.worker.id, verdict.reason) == ("bare", ChoiceReason.PANIC)
    assert pool.served_by("/classify") == {"dynamo"}


def test_parameters_that_speculative_decoding_refuses_go_where_there_is_none() -> None:
    pool = Pool()
    for name, spec_decode in (("spec", True), ("plain", False), ("silent", None)):
        pool.add(name, Engine(spec_decode=spec_decode))
    path = "/v1/completions"
    assert pool.served_by(path) == {"spec", "plain", "silent"}
    assert pool.served_by(path, needs_logits=True) == {"plain", "silent"}
    pool.report("plain", healthy=False)
    pool.report("silent", healthy=False)
    assert pool.served_by(path, needs_logits=True) == {"spec"}, "its own refusal is the clearest answer then"
    pool.report("plain", healthy=True)
    assert pool.served_by(path, needs_logits=True) == {"plain"}


class Exactly(str):
    def contains(self, version: str) -> bool:
        return version == self


def test_a_worker_outside_of_the_pin_gets_nothing_not_even_in_a_panic() -> None:
    pool = Pool(m=Pin("vllm", Exactly("0.32.0")))
    pool.add("old", Engine("vllm", "0.29.1"))
    verdict = pool.ask("/v1/completions")
    assert verdict == Refuse(
        RefusalReason.NO_WORKERS,
        "every worker of this model is asleep, held back by an operator, or outside of its pin",
    )
    pool.add("new", Engine("vllm", "0.32.0"))
    assert pool.served_by("/v1/completions") == {"new"}
    pool.report("new", healthy=False)
    assert pool.served_by("/v1/completions") == {"new"}
    (old, _) = sorted(pool.router.pools["m"].members, key=lambda state: state.worker.engine.version)
    assert pool.router.pools["m"].problem(old) == "engine_version is 0.29.1, and 0.32.0 is pinned"
    # Its engine is replaced by the right one.
    pool.add("old", Engine("vllm", "0.32.0"))
    pool.report("new", healthy=True)
    pool.now += RAMP_S
    assert pool.served_by("/v1/completions") == {"new", "old"}


@pytest.mark.parametrize(
    ("pin", "engine", "problem"),
    [
        (Pin(), Engine(), None),
        (Pin("vllm"), Engine("sglang"), "engine is sglang, and vllm is pinned"),
        (Pin("vllm"), Engine(), "engine is not known, and vllm is pinned"),
        (Pin(versions=Exactly("1")), Engine(), "engine_version is not known, and 1 is pinned"),
        (Pin(revision="abc"), Engine(revision="abd"), "model_revision is abd, and abc is pinned"),
        (Pin(revision="abc"), Engine(revision="abc"), None),
        (Pin(spec_decode=False), Engine(spec_decode=True), "spec_decode is true, and false is pinned"),
        (Pin(spec_decode=True), Engine(), "spec_decode is not known, and true is pinned"),
        (Pin(spec_decode=True), Engine(spec_decode=True), None),
    ],
)
def test_what_a_pin_asks(pin: Pin, engine: Engine, problem: str | None) -> None:
    assert pin.problem(engine) == problem


def test_the_table_of_services() -> None:
    assert list(SERVICES) == [endpoint.path for endpoint in ENDPOINTS]
    for path, service in SERVICES.items():
        assert service.path == service.spellings[0] == path
        assert set(service.spellings) <= service.alternatives
        assert all(SERVICES[other].task is service.task for other in service.alternatives)
