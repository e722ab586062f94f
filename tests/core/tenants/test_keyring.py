"""Which grant a presented key has."""

import hmac
from hashlib import sha256
from typing import Any

import pytest

from app.core.fleet.tenant import Grant, Plane
from app.core.tenants import keyring
from app.core.tenants.keyring import EVERYBODY, KeyProblem, Keyring, may_use


def grant(key: bytes = b"k", **options: Any) -> Grant:
    return Grant(**({"name": "n", "tenant": "t", "digest": sha256(key).digest()} | options))


def test_without_keys_everybody_is_let_in_but_not_where_a_file_is_expected() -> None:
    assert Keyring().find(b"", Plane.DATA, 0) is EVERYBODY
    closed = Keyring(is_closed=True)
    assert closed.find(b"", Plane.DATA, 0) is KeyProblem.UNKNOWN
    closed.replace([grant()])
    closed.replace([])
    assert closed.find(b"k", Plane.DATA, 0) is KeyProblem.UNKNOWN


def test_bounds_in_time_and_planes() -> None:
    ring = Keyring(is_closed=True)
    ring.replace([grant(not_before=10.0, expires=20.0), grant(b"both", planes=(Plane.ADMIN, Plane.DATA))])
    assert ring.find(b"k", Plane.DATA, 9.9) is KeyProblem.NOT_YET
    assert isinstance(ring.find(b"k", Plane.DATA, 10.0), Grant)
    assert ring.find(b"k", Plane.DATA, 20.0) is KeyProblem.EXPIRED
    assert ring.find(b"k", Plane.ADMIN, 10.0) is KeyProblem.OTHER_PLANE
    assert isinstance(ring.find(b"both", Plane.ADMIN, 0), Grant)
    assert ring.has_plane(Plane.ADMIN)
    ring.replace([grant()])
    assert not ring.has_plane(Plane.ADMIN)


def test_several_keys_of_a_tenant_and_fixed_ones_that_a_file_cannot_take() -> None:
    ring = Keyring([grant(b"fixed", name="fixed")])
    ring.replace([grant(b"old", name="old"), grant(b"new", name="new"), grant(b"fixed", name="stolen")])
    found = [ring.find(key, Plane.DATA, 0) for key in (b"old", b"new", b"fixed")]
    assert [getattr(item, "name", None) for item in found] == ["old", "new", "fixed"]


def test_keys_are_compared_as_digests_and_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one, other)

    monkeypatch.setattr(keyring, "hmac", type("hmac", (), {"compare_digest": staticmethod(compare)}))
    ring = Keyring([grant(b"secret")])
    assert isinstance(ring.find(b"secret", Plane.DATA, 0), Grant)
    assert compared == [(sha256(b"secret").digest(),) * 2]
    assert b"secret" not in repr(vars(ring)).encode()


def test_models_are_patterns_of_any_of_their_names() -> None:
    assert may_use(grant(), "anything")
    some = grant(models=("llama-*", "org/exact"))
    assert may_use(some, "llama-3")
    assert may_use(some, "gpt-4o", "llama-3"), "an alias of a model that it may use"
    assert may_use(some, "org/exact")
    assert not may_use(some, "org/exact-not")
    assert not may_use(some, "Llama-3")
    assert not may_use(some, "x\nllama-3")
