"""Limits among gateways and their processes, with the store and without."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.fleet.tenant import GatewayUsage, Grant, KeySet, Limits
from app.core.tenants.demand import Demand
from app.core.tenants.division import STALE_S, Division, stored_name
from app.core.tenants.shares import limited_scopes

LIMITS = {"tenant t": Limits(100.0, 1000.0, 10, 1000)}
ROW = st.tuples(
    st.floats(0, 100), st.floats(0, 1e4), st.integers(0, 9), st.integers(0, 20), st.just(0), st.integers(0, 99)
)


@given(st.lists(st.lists(ROW, min_size=1, max_size=4), min_size=1, max_size=4), st.booleans())
def test_all_gateways_together_keep_to_the_limit(demand: list[list[tuple[float, ...]]], is_store_gone: bool) -> None:
    divisions = [Division(f"g{number}", len(rows), 0) for number, rows in enumerate(demand)]
    rows = [[{"tenant t": row} for row in gateway] for gateway in demand]
    usages = [division.usage(own) for division, own in zip(divisions, rows, strict=True)]
    totals = [0.0] * 4
    for division, own in zip(divisions, rows, strict=True):
        division.heard(usages, 0.0)
        shares = division.shares(LIMITS, own, STALE_S + 1 if is_store_gone else 0.0)["tenant t"]
        assert len(shares) == len(own)
        for place, amounts in enumerate(zip(*shares, strict=True)):
            totals[place] += sum(amounts)
    assert totals == pytest.approx([100.0, 1000.0, 10, 1000])


def test_without_the_store_gateways_share_evenly_and_their_processes_by_demand() -> None:
    division = Division("b", 2, 0)
    busy, idle = (9.0, 0.0, 0.0, 0.0, 0.0, 0.0), (0.0,) * 6
    others = GatewayUsage("a", 2, {stored_name("tenant t"): [busy, busy]})
    division.heard([others, division.usage([{}, {}])], 0.0)
    rows = [{"tenant t": busy}, {"tenant t": idle}]
    with_store = division.shares(LIMITS, rows, 1.0)["tenant t"]
    assert sum(share[0] or 0 for share in with_store) < 40, "the other gateway is asked for more"
    assert division.is_local(STALE_S + 1)
    local = division.shares(LIMITS, rows, STALE_S + 1)["tenant t"]
    assert [share[0] for share in local] == pytest.approx([47.5, 2.5])
    assert (division.gateways, division.parts, division.first_place) == (2, 4, 2)


def test_what_nobody_asks_for_is_not_in_it_and_no_name_is_published() -> None:
    division = Division("g", 1, 3)
    assert division.shares(LIMITS, [{}], 0.0) == {}
    assert division.parts == 4, "as many as the operator says, until others are heard of"
    division.heard([], 0.0)
    assert division.shares(LIMITS, [{}], 0.0) == {}
    assert division.parts == 1
    assert "tenant t" not in repr(division.usage([{"tenant t": (1.0,) * 6}]))


def test_limited_scopes() -> None:
    keys = KeySet((Grant("a", "t", b"", limits=Limits(1.0)), Grant("b", "t", b"")), {"t": Limits(), "u": Limits(2.0)})
    assert limited_scopes(keys) == {"tenant u": Limits(2.0), "key a": Limits(1.0)}


def test_demand_fades_and_numbers_of_now_do_not_stay() -> None:
    demand = Demand()
    demand.report({"s": (8.0, 80.0, 3, 4, 5, 6)}, 0.0)
    demand.report({"s": (1.0, 0.0, 1, 1, 0, 0)}, 5.0)
    assert demand.rows == {"s": [5.0, 40.0, 1, 1, 0, 0]}
    demand.report({}, 10.0)
    assert demand.rows == {"s": [2.5, 20.0, 0.0, 0.0, 0.0, 0.0]}
    demand.report({}, 100.0)
    assert demand.rows == {}
