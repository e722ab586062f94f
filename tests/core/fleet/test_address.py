"""What a worker's URL may be."""

import socket
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.fleet.address import (
    Destination,
    address_in,
    bracketed,
    destination_of,
    literal_address,
    parse_worker_url,
    worker_id,
)


@pytest.mark.parametrize(
    ("url", "parsed", "name"),
    [
        ("http://Gpu-1:8000/", "http://gpu-1:8000", "gpu-1:8000"),
        (" http://gpu-1 ", "http://gpu-1:80", "gpu-1:80"),
        ("https://gpu-1/engines/a/", "https://gpu-1:443/engines/a", "gpu-1:443~engines~a"),
        ("http://[::1]:8000", "http://[::1]:8000", "[::1]:8000"),
        ("http://[FD00:0::0:1]", "http://[fd00::1]:80", "[fd00::1]:80"),
        ("http://[::ffff:10.0.0.1]:8000", "http://10.0.0.1:8000", "10.0.0.1:8000"),
        ("http://vllm_1.llm.svc.:8000", "http://vllm_1.llm.svc.:8000", "vllm_1.llm.svc.:8000"),
    ],
)
def test_one_form_for_each_address(url: str, parsed: str, name: str) -> None:
    assert parse_worker_url(url) == parsed
    assert parse_worker_url(parsed) == parsed
    assert worker_id(parsed) == name


@pytest.mark.parametrize(
    "url",
    [
        "",
        "gpu-1:8000",
        "ftp://gpu-1",
        "http://",
        "http://gpu-1?x=1",
        "http://gpu-1#x",
        "http://gpu-1:0",
        "http://g:99999",
        "http://g:8o",
        "http://[::1",
        "http://[::1]x",
        "http://x[::1]",
        "http://[::1]x:80",
        "http://[gpu-1]",
        "http://[v1.a]",
        "http://[fe80::1%25eth0]",
        "http://a..b",
        "http://.a",
        "http://-a",
        "http://a%2eb",
        "http://a\\b",
        "http://a,b",
        "http://b\u00fccher",
        "http://a b",
        "http://a\tb",
        "http://a\r\nx: y",
    ],
)
def test_what_it_may_not_be(url: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_worker_url(url)


@pytest.mark.parametrize(
    "host",
    [
        "2130706433",
        "2852039166",
        "0x7f000001",
        "0xA9FEA9FE",
        "017700000001",
        "127.1",
        "127.0.1",
        "0x7f.1",
        "0177.0.0.1",
        "169.254.169.0xfe",
        "127.0.0.1.",
        "256.0.0.1",
        "1.2.3.4.5",
        "gpu.7",
        "0x",
        "\uff11\uff16\uff19.254.169.254",
        "169\u3002254\u3002169\u3002254",
        "[127.0.0.1]",
    ],
)
def test_an_address_has_one_spelling(host: str) -> None:
    with pytest.raises(ValueError, match=r"(?i)ipv4 address|neither a name nor an address|\[127|NFKC"):
        parse_worker_url(f"http://{host}:8000/")


@given(st.ip_addresses())
def test_an_address_is_its_own_literal(address: IPv4Address | IPv6Address) -> None:
    url = parse_worker_url(f"http://{bracketed(str(address))}:8000")
    host = destination_of(url).host
    assert literal_address(host) == address_in(url) == host
    assert parse_worker_url(url) == url


@given(st.text(alphabet="0123456789abcfx.-:[]/@?#%\\ \u3002\uff11", max_size=24))
def test_what_is_taken_says_the_same_to_everybody(host: str) -> None:
    try:
        url = parse_worker_url(f"http://{host}")
    except ValueError:
        return
    destination = destination_of(url)
    assert urlsplit(url).hostname == httpx.URL(url).host == destination.host
    if literal_address(destination.host) is None:
        with pytest.raises(OSError, match=r".+"):
            socket.inet_aton(destination.host.rstrip("."))


def test_a_destination_is_of_a_url_in_its_one_form() -> None:
    assert destination_of("https://gpu-1:443/engines/a") == Destination("https", "gpu-1", 443, "/engines/a")
    assert destination_of("http://[fd00::1]:80") == Destination("http", "fd00::1", 80)
    assert (address_in("http://gpu-1:80"), address_in("http://[::1]:80"), address_in("nonsense")) == ("", "::1", "")
    for url in ("http://gpu-1", "http://GPU:80", "http://[::0:1]:80", "nonsense"):
        with pytest.raises(ValueError, match=r".+"):
            destination_of(url)


@pytest.mark.parametrize("url", ["http://u:secret@gpu-1", "ftp://u:secret@gpu-1", "http://u:secret@gpu-1?x"])
def test_a_password_is_refused_and_never_repeated(url: str) -> None:
    with pytest.raises(ValueError, match="worker_api_key") as refused:
        parse_worker_url(url)
    assert "secret" not in str(refused.value)
