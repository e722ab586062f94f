"""How many connections each client has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.clients import Clients, client_of


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::1", "2001:db8:1:2::"),
        ("2001:db8:1:3::1", "2001:db8:1:3::"),
        ("fe80::1%eth0", "fe80::"),
        ("", ""),
    ],
)
def test_whose_connections_are_counted_together(address: str, client: str) -> None:
    assert client_of(address) == client


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["a", "b", "c"]))))
def test_nobody_has_more_than_the_limit_and_every_place_is_given_back(steps: list[tuple[bool, str]]) -> None:
    clients = Clients(2)
    open_ones: list[str] = []
    for is_new, address in steps:
        if is_new:
            client = clients.enter(address)
            assert (client is None) is (open_ones.count(address) == 2)
            if client is None:
                clients.leave(client)  # the refused connection ends
            else:
                open_ones.append(client)
        elif address in open_ones:
            open_ones.remove(address)
            clients.leave(address)
        assert clients.known == len(set(open_ones))


def test_without_a_limit_nothing_is_counted() -> None:
    clients = Clients(0)
    entered = [clients.enter("10.0.0.1") for _ in range(100)]
    assert None not in entered
    assert not clients.known
    for client in entered:
        clients.leave(client)
