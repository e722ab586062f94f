"""Checks of addresses: worker URLs, the store's URL, and the hosts that listeners bind."""

import ipaddress
import re
from urllib.parse import SplitResult, unquote, urlsplit

from app.config.errors import MASK, shown
from app.core.fleet.address import parse_worker_url

WORKER_SCHEMES = ("http", "https")

STORE_SCHEMES = ("redis", "rediss", "unix")

WILDCARDS = ("0.0.0.0", "::")


def worker_url(text: str) -> str:
    """The URL in the form in which workers are compared: lower case, port written out, no trailing slash.

    Raises ValueError with the rule that is broken, and without a password that the text may hold.
    """
    parts = _split(text)
    if parts.scheme not in WORKER_SCHEMES:
        raise ValueError(f"{shown(text)} must begin with http:// or https://")
    if "@" in parts.netloc:
        raise ValueError(f"{shown(text)} must not carry a user or password; use worker_api_key")
    if not parts.hostname:
        raise ValueError(f"{shown(text)} has no host")
    if text.endswith(("?", "#")):
        raise ValueError(f"{shown(text)} must not have a query or a fragment")
    return parse_worker_url(text)


def store_url(text: str) -> str:
    """Raises ValueError, without the text: it may hold a password."""
    try:
        parts = _split(text)
    except ValueError:
        raise ValueError("is not a URL") from None
    if parts.scheme not in STORE_SCHEMES:
        raise ValueError("must begin with redis://, rediss:// or unix://")
    if parts.scheme == "unix" and not parts.path:
        raise ValueError("has no socket path")
    if parts.scheme != "unix" and not parts.hostname:
        raise ValueError("has no host")
    # Here, because it loads the client library, which a configuration without such a URL does not need.
    from app.store.address import Address

    Address(text)
    return text


def masked_store_url(text: str) -> str:
    """The store's URL with the password, if it has one, masked."""
    parts = urlsplit(text)
    if parts.password is not None:
        user, _, address = parts.netloc.rpartition("@")
        text = text.replace(parts.netloc, f"{user.partition(':')[0]}:{MASK}@{address}", 1)

    def masked(item: re.Match[str]) -> str:
        return f"{item[1]}{item[2]}={MASK}" if unquote(item[2]).lower() == "password" else item[0]

    return re.sub(r"([?&])([^=&#]*)=([^&#]*)", masked, text)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on `host`. A name other than `localhost` counts as reachable."""
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool(address.is_loopback or (mapped is not None and mapped.is_loopback))


def overlap(one: str, other: str) -> bool:
    """Whether listeners on these two hosts would fight over a port. `localhost` may be any loopback address."""
    one, other = one.lower(), other.lower()
    if one == other or one in WILDCARDS or other in WILDCARDS:
        return True
    return "localhost" in (one, other) and is_loopback(one) and is_loopback(other)


def listen_host(text: str) -> str:
    """An address or name to bind, without brackets and port. Raises ValueError."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?", text):
            raise ValueError(f"{shown(text)} must be one IP address or host name, without port") from None
    return text


def _split(text: str) -> SplitResult:
    """Like urlsplit, which would drop line breaks and tabs, and would leave a bad port for later."""
    if not text or re.search(r"[\s\x00-\x1f\x7f]", text):
        raise ValueError(f"{shown(text)} is not a URL")
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018  raises when it is not a number below 65536
    except ValueError:
        raise ValueError(f"{shown(text)} is not a URL, or its port is not one") from None
    return parts
