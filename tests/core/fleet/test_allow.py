"""Where workers may be."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.fleet.address import parse_worker_url
from app.core.fleet.allow import NEVER, AllowList, DestinationRules, never_allowed, parse_allow_list, parse_pattern

HTTP = "http://gpu-1.llm.svc:8000"

IN_V6 = ("::ffff:{}", "64:ff9b::{}", "::{}")
"""How an IPv4 address is written into an IPv6 one, which some router may turn back."""


@pytest.mark.parametrize(
    ("pattern", "scheme", "host", "address", "port", "allowed"),
    [
        ("gpu-1", "http", "gpu-1", "10.0.0.1", 8000, True),
        ("GPU-1", "http", "gpu-1", "10.0.0.1", 8000, True),
        ("gpu-1", "http", "gpu-1.", "10.0.0.1", 8000, True),
        ("gpu-1.", "http", "gpu-1", "10.0.0.1", 8000, True),
        ("gpu-1", "http", "gpu-10", "10.0.0.1", 8000, False),
        ("gpu-1", "http", "gpu-1.evil.example", "10.0.0.1", 8000, False),
        ("gpu.1a", "http", "gpux1a", "10.0.0.1", 8000, False),
        ("gpu-*", "http", "gpu-17", "10.0.0.1", 8000, True),
        ("gpu-*", "http", "gpu-", "10.0.0.1", 8000, True),
        ("gpu-*", "http", "gpu-1.evil.example", "10.0.0.1", 8000, False),
        ("*.llm.svc", "http", "vllm-0.llm.svc", "10.0.0.1", 8000, True),
        ("*.llm.svc", "http", "llm.svc", "10.0.0.1", 8000, False),
        ("*.llm.svc", "http", "a.b.llm.svc", "10.0.0.1", 8000, False),
        ("*.*.llm.svc", "http", "a.b.llm.svc", "10.0.0.1", 8000, True),
        ("*.llm.svc", "http", "llm.svc.evil.example", "10.0.0.1", 8000, False),
        ("*.llm.svc", "http", "10.0.0.1", "10.0.0.1", 8000, False),
        ("*", "http", "anything.at.all", "10.0.0.1", 1, True),
        ("*", "http", "10.0.0.1", "10.0.0.1", 1, True),
        ("*:8000", "http", "10.0.0.1", "10.0.0.1", 8001, False),
        ("10.0.0.1", "http", "10.0.0.1", "10.0.0.1", 8000, True),
        ("10.0.0.1", "http", "gpu-1", "10.0.0.1", 8000, True),
        ("10.0.0.1", "http", "gpu-1", "10.0.0.2", 8000, False),
        ("10.0.0.0/8", "http", "gpu-1", "10.255.0.1", 8000, True),
        ("10.0.0.0/8", "http", "gpu-1", "11.0.0.1", 8000, False),
        ("10.0.0.0/8", "http", "gpu-1", "::ffff:10.0.0.1", 8000, True),
        ("10.0.0.0/8", "http", "gpu-1", "fd00::1", 8000, False),
        ("0.0.0.0/0", "http", "gpu-1", "fd00::1", 8000, False),
        ("[fd00::]/8", "http", "gpu-1", "fd12::1", 8000, True),
        ("[fd00::]/8", "http", "gpu-1", "fe80::1%eth0", 8000, False),
        ("[fe80::]/10", "http", "gpu-1", "fe80::1%eth0", 8000, True),
        ("[fd00::1]:8000", "http", "fd00::1", "fd00::1", 8000, True),
        ("[fd00::1]:8000", "http", "fd00::1", "fd00::1", 8001, False),
        ("https://gpu-1", "https", "gpu-1", "10.0.0.1", 443, True),
        ("https://gpu-1", "http", "gpu-1", "10.0.0.1", 443, False),
        ("HTTP://gpu-1:8000-8099", "http", "gpu-1", "10.0.0.1", 8000, True),
        ("http://gpu-1:8000-8099", "http", "gpu-1", "10.0.0.1", 8099, True),
        ("http://gpu-1:8000-8099", "http", "gpu-1", "10.0.0.1", 8100, False),
        ("http://10.0.0.0/8:8000-8099", "http", "gpu-1", "10.0.0.1", 7999, False),
        ("[fd00::]/8:80-90", "http", "gpu-1", "fd00::1", 85, True),
    ],
)
def test_what_a_pattern_allows(pattern: str, scheme: str, host: str, address: str, port: int, allowed: bool) -> None:
    allow = parse_allow_list([pattern])
    assert allow.allows(scheme, host, address, port) is allowed
    if allowed:
        assert allow.may_allow(scheme, host, port)
    other = parse_allow_list(["nobody.example", pattern])
    assert other.allows(scheme, host, address, port) is allowed, "one that fits is enough"


@pytest.mark.parametrize(
    ("pattern", "host", "port", "may"),
    [
        ("10.0.0.0/8", "gpu-1", 8000, True),
        ("10.0.0.0/8:8000", "gpu-1", 8001, False),
        ("10.0.0.0/8", "11.0.0.1", 8000, False),
        ("gpu-1", "gpu-2", 8000, False),
    ],
)
def test_what_may_be_allowed_before_its_name_is_looked_up(pattern: str, host: str, port: int, may: bool) -> None:
    assert parse_allow_list([pattern]).may_allow("http", host, port) is may


def test_without_patterns_everything_is_allowed() -> None:
    assert AllowList().allows("http", "gpu-1", "10.0.0.1", 1)
    assert AllowList().may_allow("http", "gpu-1", 1)


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("", "[scheme://]HOST[:PORT]"),
        (":80", "[scheme://]HOST[:PORT]"),
        ("http://", "[scheme://]HOST[:PORT]"),
        ("gpu-1/", "[scheme://]HOST[:PORT]"),
        ("http://gpu-1/v1", "[scheme://]HOST[:PORT]"),
        ("http://user@gpu-1", "[scheme://]HOST[:PORT]"),
        ("gpu-1:", "[scheme://]HOST[:PORT]"),
        ("gpu-1:80-", "[scheme://]HOST[:PORT]"),
        ("fd00::/8", "an IPv6 address stands in brackets"),
        ("ftp://gpu-1", "must begin with http:// or https://"),
        ("gpu-1:0", "a port from 1 to 65535"),
        ("gpu-1:99999", "a port from 1 to 65535"),
        ("gpu-1:81-80", "a port from 1 to 65535"),
        ("a b", "must have a name"),
        ("gpu?", "must have a name"),
        ("b\u00fccher", "must have a name"),
        ("10.*", "must have a name"),
        ("gpu-1/8", "no address or range of addresses"),
        ("10.0.0.1/8", "host bits set"),
        ("10.0.0.0/33", "no address or range of addresses"),
        ("0x7f.1", "no address or range of addresses"),
        ("2130706433", "no address or range of addresses"),
        ("010.0.0.0/8", "no address or range of addresses"),
        ("[10.0.0.1]", "IPv6 address in brackets"),
        ("[::ffff:10.0.0.0]/104", "IPv4 one as a.b.c.d"),
        ("[gpu-1]", "no address or range of addresses"),
    ],
)
def test_what_is_no_pattern(pattern: str, told: str) -> None:
    with pytest.raises(ValueError, match=r".+") as refused:
        parse_pattern(pattern)
    assert told in str(refused.value)
    assert repr(pattern) in str(refused.value)


def test_everything_that_is_wrong_is_told() -> None:
    with pytest.raises(ValueError, match=r"10\.0\.0\.1/8.*; .*gpu-1:0"):
        parse_allow_list(["10.0.0.1/8", "gpu-1", "gpu-1:0"])


@given(st.ip_addresses(v=4), st.integers(0, 32), st.ip_addresses(v=4))
def test_a_range_holds_what_it_holds(base: IPv4Address, bits: int, address: IPv4Address) -> None:
    network = IPv4Network((base, bits), strict=False)
    allow = parse_allow_list([f"{network}:8000"])
    assert allow.allows("http", "name", str(address), 8000) is (address in network)
    assert allow.allows("http", "name", f"::ffff:{address}", 8000) is (address in network)


LABEL = st.from_regex(r"[ab][ab9-]{0,2}", fullmatch=True)
NAME = st.lists(LABEL, min_size=1, max_size=3).map(".".join)


@given(NAME, NAME)
def test_a_name_allows_itself_alone(one: str, other: str) -> None:
    allow = parse_allow_list([one])
    assert allow.may_allow("http", other, 80) is (one == other)
    assert allow.may_allow("http", one, 80)


@given(NAME, st.lists(LABEL, max_size=3), LABEL)
def test_a_star_stands_for_one_label(tail: str, below: list[str], behind: str) -> None:
    allow = parse_allow_list(["*." + tail])
    host = ".".join([*below, tail])
    assert allow.may_allow("http", host, 80) is (len(below) == 1)
    assert not allow.may_allow("http", f"{behind}.{tail}.{behind}", 80)


@given(st.text(alphabet="htps:/[]0123456789abcdef.*-%@ ", max_size=24))
def test_a_pattern_is_taken_or_told_to_be_none(text: str) -> None:
    told = ""
    try:
        assert parse_pattern(text).text == text
    except ValueError as error:
        told = str(error)
    assert not told or repr(text) in told


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254", "169.254.170.2", "169.254.0.0", "100.100.100.200", "168.63.129.16", "192.0.0.192",
        "224.0.0.1", "239.255.255.255", "255.255.255.255", "0.0.0.0", "0.1.2.3",
        "fe80::1", "fe80::a9fe:a9fe", "febf::1", "fe80::1%eth0", "ff02::1", "::", "fd00:ec2::254", "fd20:ce::254",
        "2002:a9fe:a9fe::1", "64:ff9b::a9fe:a9fe", "::ffff:a9fe:a9fe", "::a9fe:a9fe",
    ],
)  # fmt: skip
def test_where_nobody_may_register_a_worker(address: str) -> None:
    assert never_allowed(address)
    # Nor may he allow it to himself by a list: such a worker has to be in the configuration.
    rules = DestinationRules(parse_allow_list(["*", "0.0.0.0/0", "[::]/0"]))
    why = rules.refusal(HTTP, ["10.0.0.1", address])
    assert why is not None
    assert address in why


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "::1", "10.0.0.1", "192.168.1.1", "8.8.8.8", "fd00::1", "2001:db8::1"]
)
def test_where_workers_are(address: str) -> None:
    assert never_allowed(address) is None
    assert DestinationRules().refusal(HTTP, [address]) is None


@given(st.sampled_from([network for _, network in NEVER]), st.integers(min_value=0), st.sampled_from(IN_V6))
def test_no_spelling_of_a_forbidden_address_is_taken(network: object, number: int, form: str) -> None:
    assert isinstance(network, type(ip_network("::/0")) | IPv4Network)
    address = network[number % network.num_addresses]
    assert never_allowed(str(address))
    url = f"http://[{address}]" if isinstance(address, IPv6Address) else f"http://{address}"
    assert DestinationRules().refusal(parse_worker_url(url))
    if isinstance(address, IPv4Address) and form.format(address) != "::0.0.0.1":
        assert never_allowed(form.format(address))
        assert never_allowed(str(ip_address(form.format(address))))
        assert DestinationRules().refusal(parse_worker_url(f"http://[{form.format(address)}]"))


def test_the_configuration_may_name_any_place_within_its_own_list() -> None:
    metadata, prefixed = "http://169.254.169.254:80", "http://gpu-1:80/engine"
    rules = DestinationRules(configured=frozenset([metadata, prefixed]))
    assert rules.refusal(metadata) is None
    assert rules.refusal(prefixed, ["169.254.1.1"]) is None
    assert DestinationRules().refusal(metadata)
    assert "path" in (DestinationRules().refusal(prefixed) or "")
    listed = DestinationRules(parse_allow_list(["gpu-*:80"]), frozenset([metadata, prefixed]))
    assert listed.refusal(prefixed) is None
    assert "allowed are gpu-*:80" in (listed.refusal(metadata) or "")


def test_all_addresses_of_a_name_have_to_be_allowed() -> None:
    rules = DestinationRules(parse_allow_list(["10.0.0.0/8:8000"]))
    assert rules.refusal(HTTP) is None, "not before they are known"
    assert rules.refusal(HTTP, ["10.0.0.1", "10.0.0.2"]) is None
    assert "which is 10.0.0.1, 11.0.0.1" in (rules.refusal(HTTP, ["10.0.0.1", "11.0.0.1"]) or "")


def test_what_is_no_url_is_refused_and_a_long_list_is_cut() -> None:
    for url in ("", "nonsense", "http://gpu-1", "http://[::1", "ftp://gpu-1:80", "http://u:p@gpu-1:80"):
        assert DestinationRules().refusal(url)
    why = DestinationRules(parse_allow_list([f"gpu-{number}" for number in range(25)])).refusal("http://a:80")
    assert why is not None
    assert why.endswith("gpu-19 and 5 more")
