"""The admin API, on a fleet of the test's own."""

import logging
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any, Literal

import httpx
import pytest

from app.api.admin import BODY_MAX, make_admin_app
from app.api.auth import Keys, fixed_grants
from app.core.fleet.address import destination_of, parse_worker_url, worker_id
from app.core.fleet.allow import DestinationRules, parse_allow_list
from app.core.fleet.errors import DestinationRefused, NameUnknown, StoreUnavailable
from app.core.fleet.order import Order, OrderKind
from app.core.fleet.registry import Registration, WorkerSource
from app.core.fleet.tenant import Grant, Plane
from app.core.tenants.keyring import Keyring

NOW = 1000.0


class FakeFleet:
    """Keeps registrations in a dict; `is_store_up` False makes changes fail as the real one does."""

    def __init__(self) -> None:
        self.workers: dict[str, Registration] = {}
        self.is_store_up = True
        self.rules = DestinationRules()
        self.orders: dict[str, Order | None] = {}

    async def order(self, worker: str, order: Order | None) -> bool:
        if worker not in self.workers:
            return False
        if not self.is_store_up:
            raise StoreUnavailable("the store is down: refused")
        self.orders[worker] = order
        return True

    def describe(self) -> list[dict[str, Any]]:
        return [
            {"id": one.id, "url": one.url, "incarnation": one.incarnation, "source": one.source.value, "load": None}
            for one in self.workers.values()
        ]

    async def add(self, url: str) -> tuple[Registration, bool]:
        url = parse_worker_url(url)
        why = self.rules.refusal(url)
        if why is not None:
            raise DestinationRefused(why)
        if destination_of(url).host == "nobody":
            raise NameUnknown("nobody cannot be looked up: not known")
        made = Registration(worker_id(url), url, f"i{len(self.workers)}", WorkerSource.ADMIN)
        if made.id in self.workers:
            return self.workers[made.id], False
        if not self.is_store_up:
            raise StoreUnavailable("the store is down: refused")
        self.workers[made.id] = made
        return made, True

    async def remove(self, worker: str, incarnation: str | None) -> Literal["removed", "unknown", "other_incarnation"]:
        if worker not in self.workers:
            return "unknown"
        if incarnation not in (None, self.workers[worker].incarnation):
            return "other_incarnation"
        if not self.is_store_up:
            raise StoreUnavailable("the store is down: refused")
        del self.workers[worker]
        return "removed"


async def no_status() -> dict[str, Any]:
    return {}


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet()


def client(
    fleet: FakeFleet, *, key: str | None = None, problem: str | None = None, **options: Any
) -> httpx.AsyncClient:
    ring = Keyring(fixed_grants([key] if key else [], "admin_api_key", Plane.ADMIN), is_closed=True)
    keys = Keys(ring, lambda: 0.0, Plane.ADMIN)

    async def status() -> dict[str, Any]:
        return {"ready": problem is None, "version": "1"}

    app = make_admin_app(fleet, status, lambda: problem, keys, lambda: NOW, may_be_open=True)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, **({"base_url": "http://127.0.0.1:30001"} | options))


@pytest.fixture
async def http(fleet: FakeFleet) -> AsyncIterator[httpx.AsyncClient]:
    async with client(fleet) as http:
        yield http


def error(answer: httpx.Response) -> dict[str, Any]:
    """The error of an answer, which has OpenAI's shape and nothing beside it."""
    body = answer.json()
    assert list(body) == ["error"]
    assert list(body["error"]) == ["message", "type", "param", "code"]
    assert body["error"]["message"]
    assert answer.headers["content-type"] == "application/json"
    return body["error"] | {"status": answer.status_code}


async def test_a_worker_comes_and_goes(http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "warmset.admin")
    assert (await http.get("/workers")).json() == {"workers": [], "total": 0}
    added = await http.post("/workers", json={"url": "http://GPU-1:8000/"})
    worker = {"id": "gpu-1:8000", "url": "http://gpu-1:8000", "incarnation": "i0", "source": "admin", "load": None}
    assert (added.status_code, added.json()) == (201, worker)
    again = await http.post("/workers", json={"url": "http://gpu-1:8000"})
    assert (again.status_code, again.json()) == (200, worker)
    assert (await http.get("/workers")).json() == {"workers": [worker], "total": 1}
    assert (await http.get("/workers/gpu-1:8000")).json() == worker
    removed = await http.delete("/workers/gpu-1:8000", params={"incarnation": "i0"})
    assert (removed.status_code, removed.json()) == (200, {"id": "gpu-1:8000", "removed": True})
    assert (await http.get("/workers")).json()["total"] == 0
    # Each change once, with who made it; the addition that changed nothing is not one.
    assert [(record.message, record.worker) for record in caplog.records] == [
        ("worker added by admin", "gpu-1:8000"),
        ("worker removed by admin", "gpu-1:8000"),
    ]
    assert caplog.records[0].client.startswith("127.0.0.1:")
    assert [record.key for record in caplog.records] == [None, None], "no key was asked for"


async def test_ids_with_a_path_and_an_ipv6_address(http: httpx.AsyncClient, fleet: FakeFleet) -> None:
    fleet.rules = DestinationRules(configured=frozenset(["http://gpu:80/a/b"]))
    for url in ("http://gpu/a/b", "http://[::1]:8000"):
        name = (await http.post("/workers", json={"url": url})).json()["id"]
        assert (await http.get(f"/workers/{name}")).json()["id"] == name
        assert (await http.delete(f"/workers/{name}")).status_code == 200


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("gpu-1:8000", "must begin with http:// or https://"),
        ("http://gpu-1?x=1", "must not have a query or fragment"),
        ("http://gpu-1:0", "names port 0"),
        ("http://gpu-1:99999", "ort"),
        ("", "must begin with"),
    ],
)
async def test_a_bad_url_is_told_with_its_rule(http: httpx.AsyncClient, url: str, rule: str) -> None:
    told = error(await http.post("/workers", json={"url": url}))
    assert (told["status"], told["type"], told["param"]) == (400, "invalid_request_error", "url")
    assert rule in told["message"]


METADATA = [
    "http://169.254.169.254/", "http://169.254.169.254:80", "https://169.254.170.2", "http://[fe80::1]:8000",
    "http://[::ffff:169.254.169.254]/", "http://[::ffff:a9fe:a9fe]", "http://[64:ff9b::a9fe:a9fe]",
    "http://[2002:a9fe:a9fe::]", "http://100.100.100.200", "http://[fd00:ec2::254]", "http://[fd00:ec2:0::0:254]",
    "http://224.0.0.1", "http://[ff02::1]", "http://0.0.0.0:30001", "http://[::]:30001", "http://0.1.2.3",
]  # fmt: skip

SPELLINGS = [
    "http://2852039166/", "http://0xa9fea9fe/", "http://0xA9.0xFE.0xA9.0xFE", "http://0251.0376.0251.0376",
    "http://169.254.43518", "http://169.16689662", "http://169.254.169.254.", "http://0/", "http://2130706433/",
    "http://0x7f.1/", "http://\uff11\uff16\uff19.254.169.254", "http://169\u3002254\u3002169\u3002254",
    "http://[fe80::1%25eth0]/", "http://169%2e254.169.254", "http://[::1]@169.254.169.254", "http://a#@169.254.169.254",
    "http://a?@169.254.169.254", "http://me:sesame@a", "file:///etc/passwd", "gopher://a:70", "http://a\\@b",
]  # fmt: skip


@pytest.mark.parametrize("url", METADATA)
@pytest.mark.parametrize("allow", [(), ("*", "0.0.0.0/0", "[::]/0")])
async def test_where_no_worker_may_be_registered(
    http: httpx.AsyncClient, fleet: FakeFleet, url: str, allow: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    fleet.rules = DestinationRules(parse_allow_list(allow))
    with caplog.at_level(logging.WARNING, "warmset.admin"):
        told = error(await http.post("/workers", json={"url": url}))
    assert (told["status"], told["code"], told["param"]) == (403, "worker_url_not_allowed", "url")
    assert told["type"] == "permission_error"
    assert "worker_urls" in told["message"]
    assert [record.message for record in caplog.records] == ["worker refused"]
    assert not fleet.workers


@pytest.mark.parametrize("url", SPELLINGS)
async def test_spellings_that_have_several_readings(http: httpx.AsyncClient, fleet: FakeFleet, url: str) -> None:
    told = error(await http.post("/workers", json={"url": url}))
    assert (told["status"], told["code"], told["param"]) == (400, "invalid_request", "url")
    assert "sesame" not in told["message"]
    assert not fleet.workers


async def test_what_is_outside_of_the_list_is_told_what_is_inside(http: httpx.AsyncClient, fleet: FakeFleet) -> None:
    fleet.rules = DestinationRules(parse_allow_list(["http://*.llm.svc:8000-8099", "10.0.0.0/8:7000"]))
    for url in ("http://gpu.llm.svc:9000", "https://gpu.llm.svc:8000", "http://11.0.0.1", "http://10.0.0.1:7000/v2"):
        told = error(await http.post("/workers", json={"url": url}))
        assert (told["status"], told["code"]) == (403, "worker_url_not_allowed")
    assert "worker_urls" in told["message"], "a path is for the configuration"
    told = error(await http.post("/workers", json={"url": "http://11.0.0.1"}))
    assert "allowed are http://*.llm.svc:8000-8099, 10.0.0.0/8:7000" in told["message"]
    assert (await http.post("/workers", json={"url": "http://gpu.llm.svc:8000"})).status_code == 201


async def test_a_name_that_nobody_knows_adds_nothing(http: httpx.AsyncClient, fleet: FakeFleet) -> None:
    told = error(await http.post("/workers", json={"url": "http://nobody:80"}))
    assert (told["status"], told["code"], told["param"]) == (400, "worker_name_unknown", "url")
    assert "nothing was added" in told["message"]
    assert not fleet.workers


@pytest.mark.parametrize(
    ("body", "param", "text"),
    [
        (b"", None, "JSON"),
        (b"{", None, "JSON"),
        (b"[]", None, "object"),
        (b"{}", "url", "required"),
        (b'{"url": 1}', "url", "string"),
        (b'{"url": "http://a", "weight": 2}', "weight", "not permitted"),
        (b"\xff", None, "JSON"),
    ],
)
async def test_a_bad_body_is_told_with_its_field(
    http: httpx.AsyncClient, fleet: FakeFleet, body: bytes, param: str | None, text: str
) -> None:
    told = error(await http.post("/workers", content=body))
    assert (told["status"], told["param"], told["code"]) == (400, param, "invalid_request")
    assert text in told["message"]
    assert 'send {"url": "http://host:port"}' in told["message"]
    assert not fleet.workers


async def test_a_large_body_is_refused_while_it_comes(http: httpx.AsyncClient) -> None:
    read = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(100):
            read += 1
            yield b" " * 1024

    told = error(await http.post("/workers", content=pieces()))
    assert (told["status"], told["code"]) == (413, "body_too_large")
    assert read == BODY_MAX // 1024 + 1


async def test_unknown_workers(http: httpx.AsyncClient) -> None:
    for answer in (await http.get("/workers/none"), await http.delete("/workers/none")):
        told = error(answer)
        assert (told["status"], told["code"]) == (404, "not_found")
        assert "'none'" in told["message"]


async def test_another_incarnation_is_left_alone(http: httpx.AsyncClient, fleet: FakeFleet) -> None:
    await http.post("/workers", json={"url": "http://a:1"})
    told = error(await http.delete("/workers/a:1?incarnation=old"))
    assert (told["status"], told["code"], told["param"]) == (409, "other_incarnation", "incarnation")
    assert fleet.workers


async def test_without_the_store_nothing_changes_and_the_client_is_told_to_come_back(
    http: httpx.AsyncClient, fleet: FakeFleet
) -> None:
    await http.post("/workers", json={"url": "http://a:1"})
    fleet.is_store_up = False
    for answer in (await http.post("/workers", json={"url": "http://b:1"}), await http.delete("/workers/a:1")):
        told = error(answer)
        assert (told["status"], told["type"], told["code"]) == (503, "server_error", "store_unavailable")
        assert "the store is down" in told["message"]
        assert answer.headers["retry-after"] == "1"
    assert (await http.post("/workers", json={"url": "http://a:1"})).status_code == 200
    assert (await http.get("/workers")).json()["total"] == 1


async def test_status_and_health(fleet: FakeFleet) -> None:
    async with client(fleet, problem="shutting down") as http:
        assert (await http.get("/status")).json() == {"ready": False, "version": "1"}
        assert (await http.get("/livez")).json() == {"status": "live"}
        ready = await http.get("/readyz")
        assert (ready.status_code, ready.json()) == (503, {"status": "not ready", "because": "shutting down"})
    async with client(fleet) as http:
        assert (await http.get("/readyz")).status_code == 200


@pytest.mark.parametrize(
    "path", ["/", "/docs", "/redoc", "/openapi.json", "/docs/oauth2-redirect", "/workers/", "/v1/models"]
)
async def test_nothing_else_is_served(http: httpx.AsyncClient, path: str) -> None:
    told = error(await http.get(path))
    assert (told["status"], told["type"]) == (404, "invalid_request_error")


async def test_other_methods(http: httpx.AsyncClient) -> None:
    answer = await http.put("/workers")
    assert (error(answer)["status"], error(answer)["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"]


async def test_a_failure_of_ours_says_nothing_of_itself(http: httpx.AsyncClient, fleet: FakeFleet) -> None:
    def broken() -> list[dict[str, Any]]:
        raise RuntimeError("sesame")

    fleet.describe = broken  # type: ignore[method-assign]
    told = error(await http.get("/workers"))
    assert (told["status"], told["type"]) == (500, "server_error")
    assert "sesame" not in told["message"]


# Who may ask


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer"},
        {"authorization": "Bearer wrong"},
        {"authorization": "sesame"},
        {"authorization": "Basic sesame"},
    ],
)
async def test_a_key_that_is_set_is_asked_for_before_anything_else(fleet: FakeFleet, headers: dict[str, str]) -> None:
    async def body() -> AsyncIterator[bytes]:
        raise AssertionError("read before the key was checked")
        yield b""

    async with client(fleet, key="sesame", headers=headers) as http:
        for answer in (
            await http.get("/workers"),
            await http.get("/nowhere"),
            await http.post("/workers", content=body()),
        ):
            told = error(answer)
            assert (told["status"], told["type"], told["code"]) == (401, "authentication_error", "invalid_api_key")
            assert answer.headers["www-authenticate"] == "Bearer"
        assert (await http.get("/livez")).status_code == 200
        assert (await http.get("/readyz")).status_code == 200


async def test_the_key_lets_in_by_any_name(fleet: FakeFleet) -> None:
    headers = {"authorization": "bearer sesame"}
    async with client(fleet, key="sesame", headers=headers, base_url="http://warmset-admin:30001") as http:
        assert (await http.get("/workers")).status_code == 200


@pytest.mark.parametrize(
    "host", ["x/livez?", "x/#@y", "127.0.0.1/livez#", "@127.0.0.1", "[::1]/livez", "localhost/livez"]
)
async def test_no_host_opens_what_needs_a_key(fleet: FakeFleet, host: str) -> None:
    """Who builds the path anew from Host and target would read one that is open in some of these."""
    async with client(fleet, key="sesame", headers={"host": host}) as http:
        for path in ("/workers", "/status", "/livez/../workers", "//livez", "/LIVEZ", "/livez/"):
            assert (await http.get(path)).status_code == 401
        assert (await http.post("/workers", json={"url": "http://a:1"})).status_code == 401
    assert not fleet.workers


@pytest.mark.parametrize(
    ("host", "is_let_in"),
    [
        ("127.0.0.1:30001", True),
        ("127.0.0.1", True),
        ("localhost:30001", True),
        ("[::1]:30001", True),
        ("10.1.2.3:30001", True),
        ("evil.example:30001", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
    ],
)
async def test_without_a_key_a_rebound_name_is_refused(http: httpx.AsyncClient, host: str, is_let_in: bool) -> None:
    answer = await http.get("/workers", headers={"host": host})
    if is_let_in:
        assert answer.status_code == 200
    else:
        told = error(answer)
        assert (told["status"], told["code"]) == (403, "forbidden")
        assert "admin_api_key" in told["message"]
    assert (await http.get("/livez", headers={"host": host})).status_code == 200


@pytest.mark.parametrize(
    ("origin", "is_let_in"),
    [
        ("http://127.0.0.1:30001", True),
        ("http://evil.example", False),
        ("null", False),
        ("http://127.0.0.1:9999", False),
    ],
)
@pytest.mark.parametrize("key", [None, "sesame"])
async def test_a_page_of_another_site_is_refused(
    fleet: FakeFleet, key: str | None, origin: str, is_let_in: bool
) -> None:
    headers = {"origin": origin, "authorization": "Bearer sesame", "content-type": "text/plain"}
    async with client(fleet, key=key, headers=headers) as http:
        answer = await http.post("/workers", content=b'{"url": "http://a:1"}')
    assert answer.status_code == (201 if is_let_in else 403)
    assert bool(fleet.workers) is is_let_in


ORDER = {"reason": "it is slow", "expires_in_secs": 60}


async def test_what_an_operator_wants_of_a_worker(fleet: FakeFleet) -> None:
    registration, _ = await fleet.add("http://gpu-1:8000")
    async with client(fleet) as http:
        for verb in (*(kind.value for kind in OrderKind), "uncordon"):
            answer = await http.post(f"/workers/{registration.id}/{verb}", json=ORDER)
            assert answer.status_code == 200
            assert answer.json()["id"] == registration.id
            order = fleet.orders[registration.id]
            if verb == "uncordon":
                assert order is None
            else:
                assert order is not None
                assert (order.kind.value, order.reason, order.until) == (verb, "it is slow", NOW + 60)
            assert (await http.post(f"/workers/nobody/{verb}", json=ORDER)).status_code == 404
            assert (await http.get(f"/workers/{registration.id}/{verb}")).status_code == 405
        assert (await http.post(f"/workers/{registration.id}/shoot", json=ORDER)).status_code == 404
        fleet.is_store_up = False
        refused = await http.post(f"/workers/{registration.id}/drain", json=ORDER)
        assert refused.status_code == 503
        assert refused.headers["retry-after"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "reason"),
        ({"reason": "x"}, "expires_in_secs"),
        ({"expires_in_secs": 5}, "reason"),
        ({"reason": "", "expires_in_secs": 5}, "reason"),
        ({"reason": "  ", "expires_in_secs": 5}, "reason"),
        ({"reason": "two\nlines", "expires_in_secs": 5}, "reason"),
        ({"reason": "x" * 201, "expires_in_secs": 5}, "reason"),
        ({"reason": "x", "expires_in_secs": 0}, "expires_in_secs"),
        ({"reason": "x", "expires_in_secs": 1e9}, "expires_in_secs"),
        ({"reason": "x", "expires_in_secs": "5"}, "expires_in_secs"),
        ({"reason": "x", "expires_in_secs": 5, "until": 7}, "until"),
    ],
)
async def test_an_order_without_reason_or_end_is_refused(fleet: FakeFleet, body: dict[str, Any], param: str) -> None:
    registration, _ = await fleet.add("http://gpu-1:8000")
    async with client(fleet) as http:
        answer = await http.post(f"/workers/{registration.id}/cordon", json=body)
    assert answer.status_code == 400
    assert error(answer)["param"] == param
    assert not fleet.orders


async def test_keys_of_the_admin_plane_open_it_and_their_loss_does_not(fleet: FakeFleet) -> None:
    ring = Keyring(is_closed=True)
    app = make_admin_app(
        fleet, no_status, lambda: None, Keys(ring, lambda: 0.0, Plane.ADMIN), lambda: NOW, may_be_open=True
    )
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:30001") as http:

        async def status(key: str | None = None) -> int:
            headers = {"authorization": f"Bearer {key}"} if key else {}
            return (await http.get("/status", headers=headers)).status_code

        assert await status() == 200
        grants = [
            Grant(name, "t", sha256(name.encode()).digest(), planes=planes)
            for name, planes in (("ops", (Plane.ADMIN,)), ("user", (Plane.DATA,)))
        ]
        ring.replace(grants)
        assert [await status(key) for key in (None, "ops", "user", "else")] == [401, 200, 403, 401]
        wrong = await http.get("/status", headers={"authorization": "Bearer user"})
        assert error(wrong)["code"] == "wrong_plane"
        ring.replace(grants[1:])
        assert [await status(key) for key in (None, "ops", "user")] == [401, 401, 403]


async def test_who_changed_what_stands_in_the_log(fleet: FakeFleet, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "warmset.admin")
    ring = Keyring(is_closed=True)
    ring.replace([Grant(name, "t", sha256(key).digest(), planes=(Plane.ADMIN,)) for name, key in KEYS.items()])
    app = make_admin_app(
        fleet, no_status, lambda: None, Keys(ring, lambda: 0.0, Plane.ADMIN), lambda: NOW, may_be_open=False
    )
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:30001") as http:
        for name, method, path in (
            ("ops-1", "POST", "/workers"),
            ("ops-2", "POST", "/workers"),  # is there already: changes nothing
            ("ops-2", "POST", "/workers/a:1/drain"),
            ("ops-1", "POST", "/workers/a:1/uncordon"),
            ("ops-1", "POST", "/workers/b:1/drain"),  # is not there
            ("ops-1", "GET", "/workers/a:1"),
            ("ops-2", "DELETE", "/workers/a:1"),
        ):
            headers = {"authorization": f"Bearer {KEYS[name].decode()}"}
            body = {"url": "http://a:1"} if path == "/workers" else ORDER
            assert (await http.request(method, path, headers=headers, json=body)).status_code in (200, 201, 404)
    assert [(record.key, record.message, record.worker) for record in caplog.records] == [
        ("ops-1", "worker added by admin", "a:1"),
        ("ops-2", "worker ordered by admin", "a:1"),
        ("ops-1", "worker ordered by admin", "a:1"),
        ("ops-2", "worker removed by admin", "a:1"),
    ]
    assert "sesame" not in "".join(str(vars(record)) for record in caplog.records)


KEYS = {"ops-1": b"sesame-1", "ops-2": b"sesame-2"}
