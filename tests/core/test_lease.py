"""Who leads, by its own clock, and what followers take."""

from app.core.lease import LEASE_S, RENEW_S, STOP_S, Election, Inbox, Lease, Place


def test_a_leader_stops_before_its_lease_can_end() -> None:
    lease = Lease("a")
    assert not lease.leads(0.0)
    lease.answered(Election("a", 7), 10.0)
    assert lease.leads(10.0 + STOP_S - 0.01)
    assert not lease.leads(10.0 + STOP_S)
    assert STOP_S + RENEW_S <= LEASE_S, "whoever stopped is silent for a turn before anybody else can begin"


def test_a_renewal_counts_from_when_it_was_asked_for() -> None:
    lease = Lease("a")
    lease.answered(Election("a", 7), 10.0)
    lease.answered(Election("a", 7), 11.5)  # whenever that answer came
    assert lease.leads(14.9)
    assert not lease.leads(15.0)


def test_who_hears_of_a_later_leader_stops_at_once() -> None:
    lease = Lease("a")
    lease.answered(Election("a", 7), 10.0)
    lease.heard_of(7)
    assert lease.leads(10.1)
    lease.heard_of(8)
    assert not lease.leads(10.1)
    assert lease.known_epoch == 8


def test_the_store_says_that_another_leads() -> None:
    lease = Lease("a")
    lease.answered(Election("a", 7), 10.0)
    lease.answered(Election("b", 8), 11.5)
    assert not lease.leads(11.5)
    assert (lease.leader, lease.known_epoch, lease.epoch) == ("b", 8, 7)


def test_an_answer_that_was_overtaken_makes_nobody_lead() -> None:
    lease = Lease("a")
    lease.heard_of(9)
    lease.answered(Election("a", 8), 10.0)
    assert not lease.leads(10.0)
    assert lease.known_epoch == 9


def test_a_follower_applies_what_is_later_than_all_before() -> None:
    inbox = Inbox()
    offered = [Place(7, 1), Place(7, 1), Place(7, 3), Place(7, 2), Place(8, 1), Place(7, 4), Place(8, 1), Place(8, 2)]
    assert [place for place in offered if inbox.takes(place)] == [Place(7, 1), Place(7, 3), Place(8, 1), Place(8, 2)]
