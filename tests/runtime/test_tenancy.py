"""The control process's side of tenants: the file, and shares over a store that comes and goes."""

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import pytest

from app.core.fleet.errors import StoreUnavailable
from app.core.fleet.tenant import GatewayUsage, Grant, KeySet, Limits, Plane
from app.core.tenants.admission import Admission, Ticket
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


class Process:
    """A serving process: what it was told and has not taken yet, and whom it let in."""

    def __init__(self, cluster: "Cluster") -> None:
        self.admission = Admission()
        self.tenants = Tenants(Keyring(), self.admission, lambda: cluster.now)
        self.letters: list[tuple[float, dict[str, Any]]] = []


class Cluster:
    """Gateways on one store, each with two processes, on a clock that the test turns.

    Turns and reports come once a second, at times of their own; messages take LATENCY_S.
    """

    STEP_S = 0.01
    LATENCY_S = 0.05

    def __init__(self, gateways: int, keys: KeySet) -> None:
        self.now = 0.0
        self.is_down = False
        self.grant = keys.grants[0]
        self.published: dict[str, GatewayUsage] = {}
        self.processes = [[Process(self) for _ in range(2)] for _ in range(gateways)]
        file = KeysFile("keys.yaml", lambda: 1, lambda: keys)
        self.controls = [
            TenantControl(Mail(self, place), 2, self, Division(f"g{place}", 2, 0), Keyring(), file, lambda: self.now)
            for place in range(gateways)
        ]
        for control in self.controls:
            control.load()

    async def exchange_usage(self, usage: GatewayUsage) -> list[GatewayUsage]:
        if self.is_down:
            raise StoreUnavailable("down")
        self.published[usage.gateway] = usage
        return list(self.published.values())

    async def run(self, seconds: float, asked: Sequence[Process], every_s: float) -> int:
        """Requests to these processes in turn, one every so often; how many were let in."""
        let_in, turn = 0, cycle(asked)
        steps = round(seconds / self.STEP_S)
        for step in range(round(self.now / self.STEP_S), round(self.now / self.STEP_S) + steps):
            self.now = (step + 1) * self.STEP_S
            await self._work(step)
            if step % round(every_s / self.STEP_S) == 0:
                ticket = next(turn).admission.admit(self.grant, self.now)
                if isinstance(ticket, Ticket):
                    let_in += 1
                    ticket.close(0, self.now)
        return let_in

    async def _work(self, step: int) -> None:
        for place, (control, processes) in enumerate(zip(self.controls, self.processes, strict=True)):
            for number, process in enumerate(processes):
                while process.letters and process.letters[0][0] <= self.now:
                    process.tenants.take(process.letters.pop(0)[1])
                if (step + 31 * place + 17 * number) % 100 == 0:
                    control.reported(number, process.tenants.report())
            if (step + 43 * place) % 100 == 0:
                await control.sync()

    def shares(self, place: int) -> float:
        """Of a gateway, of the requests per minute."""
        shares = self.controls[place].describe()["limited"]["tenant t"]["shares"]
        return sum(share["requests_per_minute"] for share in shares)


class Mail:
    """The way to the processes of one gateway."""

    def __init__(self, cluster: Cluster, place: int) -> None:
        self._cluster = cluster
        self._place = place

    def tell(self, message: dict[str, Any]) -> None:
        for number in range(2):
            self.tell_one(number, message)

    def tell_one(self, number: int, message: dict[str, Any]) -> None:
        due = self._cluster.now + self._cluster.LATENCY_S
        self._cluster.processes[self._place][number].letters.append((due, message))


async def test_a_limit_holds_over_gateways_follows_demand_and_outlives_the_store() -> None:
    """4 a second, and 40 at once, over two gateways."""
    cluster = Cluster(2, KeySet(KEYS.grants, {"t": Limits(requests_per_minute=240.0)}))
    await cluster.run(2, cluster.processes[0], every_s=10)
    assert cluster.controls[0].describe()["processes"] == 4
    everybody = [process for gateway in cluster.processes for process in gateway]
    let_in = 0
    for second in range(1, 11):
        let_in += await cluster.run(1, everybody, every_s=0.05)
        assert 4 * second <= let_in <= 40 + 4 * second, "the burst and the rate, and at least the rate"
    # A share that shrinks loses what was saved up, and one that grows has saved nothing up.
    assert 15 <= await cluster.run(4, everybody, every_s=0.05) <= 17
    # All of the demand goes to one gateway, and the share follows it.
    assert cluster.shares(0) == pytest.approx(120, rel=0.05)
    await cluster.run(8, cluster.processes[0], every_s=0.02)
    assert cluster.shares(0) > 200
    assert 13 <= await cluster.run(4, cluster.processes[0], every_s=0.02) <= 16, "16 in 4 s: nearly the whole limit"
    cluster.is_down = True
    await cluster.run(STALE_S + 2, cluster.processes[0], every_s=0.02)
    assert cluster.shares(0) == pytest.approx(120)
    assert 7 <= await cluster.run(4, cluster.processes[0], every_s=0.02) <= 9, "8 in 4 s: its half"


async def test_a_limit_is_never_exceeded_for_long_however_demand_moves() -> None:
    """Each second somebody else is asked: the worst for shares that follow."""
    cluster = Cluster(2, KeySet(KEYS.grants, {"t": Limits(requests_per_minute=240.0)}))
    await cluster.run(2, cluster.processes[0], every_s=10)
    everybody = [process for gateway in cluster.processes for process in gateway]
    let_in, began = 0, cluster.now
    for second in range(60):
        let_in += await cluster.run(1, [everybody[second * 7 % 4]], every_s=0.02)
        assert let_in <= 40 + 1.1 * 4 * (cluster.now - began), "stale views of each other are worth a tenth of the rate"
