"""The control process's side of tenants: the file, and shares over a store that comes and goes."""

from typing import Any

import pytest

from app.core.fleet.errors import StoreUnavailable
from app.core.fleet.tenant import GatewayUsage, Grant, KeySet, Limits, Plane
from app.core.tenants.admission import Admission
from app.core.tenants.division import STALE_S, Division
from app.core.tenants.keyring import Keyring
from app.runtime.serving import Tenants
from app.runtime.tenancy import KeysFile, TenantControl

KEYS = KeySet((Grant("a", "t", b"a" * 32, planes=(Plane.ADMIN,)),), {"t": Limits(requests_per_minute=100.0)})
BUSY = {"tenant t": [10.0, 0.0, 0, 1, 0, 0]}


class Rig:
    """Everything around a TenantControl, by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.stamp = 1
        self.content: KeySet | list[str] = KEYS
        self.reads = 0
        self.told: list[tuple[int | None, dict[str, Any]]] = []
        self.others: list[GatewayUsage] = []
        self.is_down = False
        self.ring = Keyring(is_closed=True)
        file = KeysFile("keys.yaml", lambda: self.stamp, self.read)
        self.control = TenantControl(self, 2, self, Division("b", 2, 0), self.ring, file, lambda: self.now)

    def read(self) -> KeySet | list[str]:
        self.reads += 1
        return self.content

    def tell(self, message: dict[str, Any]) -> None:
        self.told.append((None, message))

    def tell_one(self, number: int, message: dict[str, Any]) -> None:
        self.told.append((number, message))

    async def exchange_usage(self, usage: GatewayUsage) -> list[GatewayUsage]:
        if self.is_down:
            raise StoreUnavailable("down")
        return [usage, *self.others]

    def share(self, number: int) -> float:
        """Of the requests per minute, as last told to a process."""
        message = [message for place, message in self.told if place == number][-1]
        admission = Admission()
        tenants = Tenants(Keyring(), admission, lambda: self.now)
        for each in (self.control.greeting()[-1], message):
            tenants.take(each)
        bucket = admission.meters(KEYS.grants[0], self.now)[-1].requests
        assert bucket is not None
        return bucket._rate * 60


async def test_a_file_is_read_when_it_changed_and_has_settled() -> None:
    rig = Rig()
    rig.control.load()
    assert rig.ring.has_plane(Plane.ADMIN)
    for _ in range(3):
        await rig.control.watch()
    assert rig.reads == 1
    rig.stamp, rig.content = 2, KeySet()
    await rig.control.watch()
    assert rig.reads == 1, "it may still be written"
    await rig.control.watch()
    assert rig.reads == 2
    assert not rig.ring.has_plane(Plane.ADMIN)
    assert [message["kind"] for place, message in rig.told if place is None] == ["keys", "keys"]


async def test_a_bad_file_keeps_the_keys_and_shows() -> None:
    rig = Rig()
    rig.control.load()
    rig.stamp, rig.content = 2, ["line 1 is wrong", "line 2 too"]
    for _ in range(4):
        await rig.control.watch()
    assert rig.reads == 2, "it is not read again until it changes"
    assert rig.ring.has_plane(Plane.ADMIN)
    described = rig.control.describe()
    assert described["keys_file_problems"] == ["line 1 is wrong", "line 2 too"]
    assert described["keys"] == 1
    rig.stamp, rig.content = 3, KEYS
    for _ in range(2):
        await rig.control.watch()
    assert rig.control.describe()["keys_file_problems"] == []


async def test_shares_go_by_demand_and_without_the_store_by_number() -> None:
    rig = Rig()
    rig.control.load()
    rig.others = [GatewayUsage("a", 2, {})]
    await rig.control.sync()
    assert rig.share(0) == rig.share(1) == pytest.approx(25)
    rig.control.reported(0, BUSY)
    await rig.control.sync()
    assert rig.share(0) == pytest.approx(92.5)
    assert rig.share(1) == pytest.approx(2.5)
    rig.is_down = True
    rig.now += STALE_S + 1
    rig.control.reported(0, BUSY)
    await rig.control.sync()
    assert rig.share(0) + rig.share(1) == pytest.approx(50), "half of it is the other gateway's"
    assert rig.control.describe()["shares_by"] == "last known number of processes"
    shown = rig.control.describe()["limited"]["tenant t"]
    assert shown["limits"]["requests_per_minute"] == 100
    assert 80 < shown["asked_per_minute"] < 130, "10 just now and 10 six seconds ago"
    assert [share["requests_per_minute"] for share in shown["shares"]] == pytest.approx([47.5, 2.5])


async def test_a_new_process_learns_keys_and_a_cautious_share() -> None:
    rig = Rig()
    rig.control.load()
    admission, ring = Admission(), Keyring(is_closed=True)
    tenants = Tenants(ring, admission, lambda: rig.now)
    assert not tenants.known.done()
    for message in rig.control.greeting():
        tenants.take(message)
    assert tenants.known.done()
    bucket = admission.meters(KEYS.grants[0], rig.now)[-1].requests
    assert bucket is not None
    assert bucket._rate * 60 == pytest.approx(50)
    admission.admit(KEYS.grants[0], rig.now)
    assert list(tenants.report()) == ["tenant t"]
