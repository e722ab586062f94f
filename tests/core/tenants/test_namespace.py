"""Names that no other tenant has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.tenants.namespace import Namespace

ONE, TWO = b"first secret of a pair", b"second secret of a pair"


@given(st.text(max_size=10), st.text(max_size=10), st.binary(max_size=10), st.binary(max_size=10))
def test_tenants_never_meet(tenant: str, other: str, key: bytes, other_key: bytes) -> None:
    names = Namespace([ONE])
    same = (tenant, key) == (other, other_key)
    assert (names.routing_key(tenant, key) == names.routing_key(other, other_key)) is same
    assert (names.cache_salt(tenant) == names.cache_salt(other)) is (tenant == other)


def test_replicas_with_the_same_secret_agree_and_nobody_else_does() -> None:
    assert Namespace([ONE]).routing_key("t", b"k") == Namespace([ONE, TWO]).routing_key("t", b"k")
    assert Namespace([ONE]).routing_key("t", b"k") != Namespace([TWO]).routing_key("t", b"k")
    assert Namespace([ONE]).cache_salt("t") != Namespace([TWO]).cache_salt("t")
    assert Namespace([ONE]).cache_salt("t") != Namespace([ONE]).routing_key("t", b"").hex()


def test_two_are_recognised_during_rotation() -> None:
    made = Namespace([TWO]).routing_key("t", b"k")
    assert Namespace([ONE, TWO]).recognises("t", b"k", made)
    assert not Namespace([ONE]).recognises("t", b"k", made)
    assert not Namespace([ONE, TWO]).recognises("u", b"k", made)


def test_secrets_of_any_length_but_short_ones() -> None:
    long = b"x" * 65
    assert Namespace([long]).routing_key("t", b"k") != Namespace([long[:64]]).routing_key("t", b"k")
    for bad in ([], [b"short"]):
        with pytest.raises(ValueError, match="16 bytes"):
            Namespace(bad)
