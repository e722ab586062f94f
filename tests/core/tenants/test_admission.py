"""Requests against limits: what is let in, what is held, what is given back."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.fleet.tenant import Grant, KeySet, Limits
from app.core.tenants.admission import Admission, Ticket
from app.core.tenants.demand import HELD, REQUESTS, TOKENS, WANTED, WANTED_BYTES
from app.core.tenants.meter import Over


def grant(name: str = "k", tenant: str = "t", limits: Limits | None = None) -> Grant:
    return Grant(name, tenant, sha256(name.encode()).digest(), limits=limits or Limits())


def limited(tenant: Limits, *grants: Grant) -> Admission:
    admission = Admission()
    admission.replace(KeySet(grants or (grant(),), {"t": tenant}), 0.0)
    return admission


def let_in(admission: Admission, now: float = 0.0, key: Grant | None = None) -> Ticket:
    ticket = admission.admit(key or grant(), now)
    assert isinstance(ticket, Ticket)
    return ticket


def refused(admission: Admission, now: float = 0.0, key: Grant | None = None) -> Over:
    over = admission.admit(key or grant(), now)
    assert isinstance(over, Over)
    return over


def test_requests_a_minute() -> None:
    admission = limited(Limits(requests_per_minute=60))
    for _ in range(10):
        let_in(admission).close(0, 0.0)
    over = refused(admission)
    assert (over.what, over.scope, over.retry_after_s) == ("requests", "tenant t", pytest.approx(1.0))
    let_in(admission, 1.01)


def test_tokens_are_charged_afterwards_and_leave_a_debt() -> None:
    admission = limited(Limits(tokens_per_minute=600))
    first, second = let_in(admission), let_in(admission)
    first.close(150, 0.0)
    over = refused(admission)
    assert over.what == "tokens"
    assert over.retry_after_s == pytest.approx(5.1)
    second.close(0, 0.0)
    let_in(admission, 5.11)


def test_places_are_given_back_exactly_once() -> None:
    admission = limited(Limits(concurrency=2))
    one, _two = let_in(admission), let_in(admission)
    assert refused(admission).what == "concurrency"
    one.close(0, 0.0)
    one.close(0, 0.0)
    let_in(admission)
    assert refused(admission).retry_after_s == 1.0


def test_bytes_in_flight() -> None:
    admission = limited(Limits(in_flight_bytes=100))
    one, two = let_in(admission), let_in(admission)
    assert one.hold(60) is None
    over = two.hold(41)
    assert over is not None
    assert over.what == "in-flight bytes"
    assert two.hold(40) is None
    one.close(0, 0.0)
    assert two.hold(60) is None
    assert admission.report()["tenant t"][WANTED_BYTES] == 100 + 41


def test_one_body_may_be_as_large_as_the_whole_limit_and_none_larger() -> None:
    """A share that no body fits into would refuse it for ever, in each of sixteen processes."""
    admission = limited(Limits(in_flight_bytes=100))
    admission.set_shares({}, 16, 3, 0.0)
    one, two = let_in(admission), let_in(admission)
    assert one.hold(50) is one.hold(50) is None
    refused = two.hold(1)
    assert refused is not None
    assert not refused.is_final
    more = one.hold(1)
    assert more is not None
    assert more.is_final
    one.close(0, 0.0)
    assert two.hold(100) is None


def test_a_key_may_have_limits_of_its_own_and_counts_for_its_tenant() -> None:
    small = grant("small", limits=Limits(concurrency=1))
    admission = limited(Limits(concurrency=2), grant(), small)
    ticket = let_in(admission, key=small)
    assert refused(admission, key=small).scope == "key small"
    let_in(admission)
    assert refused(admission).scope == "tenant t"
    ticket.close(0, 0.0)
    let_in(admission, key=small)
    let_in(admission, key=grant(tenant="free"))


def test_a_share_is_what_counts() -> None:
    admission = limited(Limits(requests_per_minute=600, concurrency=8))
    admission.set_shares({"tenant t": (60.0, None, 1, None)}, 4, 0, 0.0)
    ticket = let_in(admission)
    assert refused(admission).what == "concurrency"
    ticket.close(0, 0.0)
    admission.set_shares({}, 4, 0, 0.0)
    let_in(admission), let_in(admission)
    assert refused(admission).what == "concurrency", "an even share: 2 of 8"


def test_other_limits_keep_what_was_used() -> None:
    admission = limited(Limits(requests_per_minute=6, concurrency=5))
    ticket = let_in(admission)
    admission.replace(KeySet((grant(),), {"t": Limits(requests_per_minute=12, concurrency=1)}), 0.0)
    assert refused(admission, 30.0).what == "concurrency"
    ticket.close(0, 30.0)
    let_in(admission, 30.0).close(0, 30.0)
    admission.replace(KeySet((grant(),), {}), 30.0)
    for _ in range(50):
        let_in(admission, 30.0)
    admission.replace(KeySet((), {}), 30.0)
    assert admission.report()["tenant t"][HELD] == 50, "what is under way is not forgotten"


def test_reports_tell_what_was_wanted() -> None:
    admission = limited(Limits(concurrency=1, tokens_per_minute=600))
    ticket = let_in(admission)
    refused(admission), refused(admission)
    row = admission.report()["tenant t"]
    assert (row[REQUESTS], row[HELD], row[WANTED]) == (3, 1, 3)
    ticket.close(160, 0.0)
    refused(admission)
    assert admission.report()["tenant t"][TOKENS] > 160, "who is refused for tokens wants more of them"
    assert admission.report() == {}


@given(st.lists(st.tuples(st.sampled_from(["ask", "close", "limits", "share"]), st.integers(0, 5)), max_size=60))
def test_nothing_is_ever_held_for_nobody(steps: list[tuple[str, int]]) -> None:
    own = grant("own", limits=Limits(concurrency=3))
    admission = limited(Limits(concurrency=4, in_flight_bytes=50), grant(), own)
    tickets: list[Ticket] = []
    for now, (step, number) in enumerate(steps):
        if step == "ask":
            ticket = admission.admit(own if number % 2 else grant(), float(now))
            if isinstance(ticket, Ticket):
                ticket.hold(number)
                tickets.append(ticket)
        elif step == "close" and tickets:
            tickets[number % len(tickets)].close(number, float(now))
        elif step == "limits":
            admission.replace(KeySet((grant(), own), {"t": Limits(concurrency=number or 1)}), float(now))
        elif step == "share":
            admission.set_shares({"tenant t": (None, None, number, number)}, 2, 0, float(now))
    for ticket in tickets:
        ticket.close(1, 100.0)
    for meter in (*admission.meters(own, 100.0), *admission.meters(grant(), 100.0)):
        assert (meter.under_way, meter.bytes_held) == (0, 0)
