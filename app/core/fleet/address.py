"""What a worker's URL may be, the name that follows from it, and the destination that it names."""

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

Address = IPv4Address | IPv6Address

NAME = re.compile(r"[a-z0-9_][a-z0-9_-]*(\.[a-z0-9_][a-z0-9_-]*)*\.?")
"""A host name, as DNS and container networks spell them. Others are written in their ASCII form (`xn--…`)."""

BRACKETS = re.compile(r"\[[^\[\]]+\](:[0-9]*)?")
"""Python takes an address in brackets whatever stands around them."""

NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


class Destination(NamedTuple):
    """Where a worker's URL leads. host: a name, or an address without brackets. path: a prefix, "" for none."""

    scheme: str
    host: str
    port: int
    path: str = ""


def parse_worker_url(url: str) -> str:
    """The URL in the one form that is compared and stored. ValueError says which rule it breaks."""
    parts = urlsplit(url.strip())
    if parts.username is not None or parts.password is not None:  # first, so that no message below quotes a password
        raise ValueError("a worker URL must not carry a user or password; use worker_api_key")
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"{url!r} must begin with http:// or https://")
    if not parts.hostname:
        raise ValueError(f"{url!r} names no host")
    if parts.query or parts.fragment:
        raise ValueError(f"{url!r} must not have a query or fragment")
    if any(character.isspace() or not character.isprintable() for character in url.strip()):
        raise ValueError("a worker URL must not contain spaces or control characters")
    port = parts.port  # ValueError when it is not a number from 0 to 65535
    if port == 0:
        raise ValueError(f"{url!r} names port 0")
    host = _parse_host(parts, url)
    default = 443 if parts.scheme == "https" else 80
    return f"{parts.scheme}://{bracketed(host)}:{port or default}{parts.path.rstrip('/')}"


def worker_id(url: str) -> str:
    """The stable name of the address: `host:port`, and the path prefix with `~` for `/`. Of a parsed URL."""
    parts = urlsplit(url)
    return parts.netloc + parts.path.replace("/", "~")


def destination_of(url: str) -> Destination:
    """Of a parsed URL. ValueError when it is not one."""
    if parse_worker_url(url) != url:
        raise ValueError(f"{url!r} is not in the form in which worker URLs are compared")
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return Destination(parts.scheme, parts.hostname, parts.port, parts.path)


def literal_address(host: str) -> str | None:
    """The host when it is an address, None when it is a name that has to be looked up."""
    try:
        return str(plain(host))
    except ValueError:
        return None


def address_in(url: str) -> str:
    """The address that a parsed URL names itself; "" when it has a name, or is not one."""
    try:
        return literal_address(destination_of(url).host) or ""
    except ValueError:
        return ""


def plain(address: str) -> Address:
    """The address without a zone, and as IPv4 when it is an IPv4 one in IPv6's clothes. ValueError when it is none."""
    parsed = ip_address(address.partition("%")[0])
    return parsed.ipv4_mapped or parsed if isinstance(parsed, IPv6Address) else parsed


def bracketed(host: str) -> str:
    """The host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def is_numeric(host: str) -> bool:
    """Whether URL parsers and C libraries take it for an address: its last part is a number.

    `2130706433`, `0x7f.1` and `0177.0.0.1` are 127.0.0.1 to many of them, and something else to others.
    """
    return NUMBER.fullmatch(host.removesuffix(".").rpartition(".")[2]) is not None


def _parse_host(parts: SplitResult, url: str) -> str:
    host = parts.hostname or ""
    if ":" in host or "[" in parts.netloc:
        try:
            if "%" not in host and BRACKETS.fullmatch(parts.netloc):
                return str(plain(str(IPv6Address(host))))
        except ValueError:
            pass
        raise ValueError(f"{url!r} must have an IPv6 address, without a zone, in its brackets")
    if is_numeric(host):
        try:
            return str(IPv4Address(host))
        except ValueError:
            raise ValueError(
                f"{url!r} spells an IPv4 address in a way that has several readings; write it as a.b.c.d"
            ) from None
    if not NAME.fullmatch(host):
        raise ValueError(f"{url!r} has a host that is neither a name nor an address")
    return host
