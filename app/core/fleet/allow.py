"""Where workers may be: what the operator allows, and the addresses that nobody but he may name.

A pattern is `[scheme://]HOST[:PORT]`. HOST is a name, a name with `*` for any characters of one label (`*.llm.svc`), an
address, a range of addresses (`10.0.0.0/8`, `[fd00::]/8`), or `*` alone for every host. PORT is a number or a range
(`8000-8099`). What is left out is not asked.

Names are matched as they are written, and addresses as they were looked up: whoever holds a name that is allowed says
where it leads, and a range holds wherever a name leads.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

from app.core.fleet.address import Address, Destination, destination_of, is_numeric, literal_address, plain

Network = IPv4Network | IPv6Network

PATTERN = re.compile(
    r"(?:(?P<scheme>[^:/\[\]]*)://)?"
    r"(?:\[(?P<v6>[^\]]*)\]|(?P<host>[^:/\[\]@]+))"
    r"(?P<prefix>/[0-9]{1,3})?"
    r"(?::(?P<first>[0-9]{1,5})(?:-(?P<last>[0-9]{1,5}))?)?"
)
NAME = re.compile(r"[a-z0-9_*-]+(\.[a-z0-9_*-]+)*\.?")

NEVER: tuple[tuple[str, Network], ...] = tuple(
    (what, ip_network(network))
    for what, network in (
        ("link-local, where clouds keep their metadata", "169.254.0.0/16"),
        ("link-local", "fe80::/10"),
        ("a metadata service", "100.100.100.200/32"),  # Alibaba Cloud
        ("a metadata service", "168.63.129.16/32"),  # Azure
        ("a metadata service", "192.0.0.192/32"),  # Oracle Cloud
        ("a metadata service", "fd00:ec2::254/128"),  # AWS
        ("a metadata service", "fd20:ce::254/128"),  # Google Cloud
        ("a metadata service", "fd00:42::42/128"),  # Scaleway
        ("multicast", "224.0.0.0/4"),
        ("multicast", "ff00::/8"),
        ("broadcast", "255.255.255.255/32"),
        ("no address of a host", "0.0.0.0/8"),
        ("no address of a host", "::/128"),
    )
)
"""No worker that somebody registers may be there, whatever is allowed. The configuration may name such a place."""

V4_IN_V6 = tuple(
    (ip_network(network), shift) for network, shift in (("64:ff9b::/96", 0), ("2002::/16", 80), ("::/96", 0))
)
"""IPv6 addresses that routers may turn into the IPv4 address that they hold, and how far it is from the end."""

V4_MAPPED = IPv6Network("::ffff:0:0/96")

LOOPBACK_V6 = IPv6Address("::1")

SHOWN = 20
"""Patterns that a refusal lists."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One pattern, parsed. name and network None: any host."""

    text: str
    scheme: str | None = None
    name: "re.Pattern[str] | None" = None
    network: Network | None = None
    ports: range | None = None

    def fits(self, scheme: str, host: str, address: Address | None, port: int) -> bool:
        """Whether a destination is within it. Without an address: whether it may be, depending on its address."""
        if self.scheme not in (None, scheme) or (self.ports is not None and port not in self.ports):
            return False
        if self.network is not None:
            return address is None or address in self.network
        return self.name is None or self.name.fullmatch(host.removesuffix(".")) is not None


def parse_pattern(text: str) -> Pattern:
    """ValueError says what is wrong with it."""
    parts = PATTERN.fullmatch(text.lower())
    if parts is None:
        raise ValueError(f"{text!r} is not [scheme://]HOST[:PORT]; an IPv6 address stands in brackets")
    scheme = parts["scheme"]
    if scheme not in (None, "http", "https"):
        raise ValueError(f"{text!r} must begin with http:// or https://, or with the host")
    name, network = _parse_host(text, parts["host"] or parts["v6"], parts["prefix"] or "", is_v6=parts["host"] is None)
    ports = None
    if parts["first"] is not None:
        first, last = int(parts["first"]), int(parts["last"] or parts["first"])
        if not 1 <= first <= last <= 65535:
            raise ValueError(f"{text!r} must have a port from 1 to 65535, or a range of them")
        ports = range(first, last + 1)
    return Pattern(text, scheme, name, network, ports)


def _parse_host(text: str, host: str, prefix: str, *, is_v6: bool) -> tuple["re.Pattern[str] | None", Network | None]:
    if is_v6 or prefix or is_numeric(host):
        try:
            network = ip_network(host + prefix)
        except ValueError as error:
            raise ValueError(f"{text!r} has no address or range of addresses: {error}") from None
        if isinstance(network, IPv6Network) is not is_v6 or network.network_address in V4_MAPPED:
            raise ValueError(f"{text!r} must have an IPv6 address in brackets, or an IPv4 one as a.b.c.d without")
        return None, network
    if host == "*":
        return None, None
    if not NAME.fullmatch(host) or re.fullmatch(r"[0-9.*]+", host):
        raise ValueError(f"{text!r} must have a name, with * for characters of one label, or addresses as a.b.c.d/bits")
    labels = re.sub(r"\*+", "[^.]*", host.removesuffix(".").replace(".", r"\."))
    return re.compile(labels), None


@dataclass(frozen=True, slots=True)
class AllowList:
    """Patterns of which one has to fit. Without any, everything is allowed."""

    patterns: tuple[Pattern, ...] = ()

    def allows(self, scheme: str, host: str, resolved_address: str, port: int) -> bool:
        """host: as the URL has it. resolved_address: what it stands for, or itself."""
        return not self.patterns or self._fits(scheme, host, plain(resolved_address), port)

    def may_allow(self, scheme: str, host: str, port: int) -> bool:
        """Whether there is an address for which it would be allowed."""
        literal = literal_address(host)
        address = plain(literal) if literal is not None else None
        return not self.patterns or self._fits(scheme, host, address, port)

    def __str__(self) -> str:
        more = len(self.patterns) - SHOWN
        return ", ".join(pattern.text for pattern in self.patterns[:SHOWN]) + (f" and {more} more" if more > 0 else "")

    def _fits(self, scheme: str, host: str, address: Address | None, port: int) -> bool:
        return any(pattern.fits(scheme, host, address, port) for pattern in self.patterns)


def parse_allow_list(texts: Iterable[str]) -> AllowList:
    """ValueError tells everything that is wrong."""
    patterns, wrong = [], []
    for text in texts:
        try:
            patterns.append(parse_pattern(text))
        except ValueError as error:
            wrong.append(str(error))
    if wrong:
        raise ValueError("; ".join(wrong))
    return AllowList(tuple(patterns))


def never_allowed(address: str) -> str | None:
    """What the address is, when nobody may register a worker there."""
    reached: list[Address] = [plain(address)]
    if isinstance(reached[0], IPv6Address) and reached[0] != LOOPBACK_V6:
        bits = int(reached[0])
        reached += [IPv4Address(bits >> shift & 0xFFFFFFFF) for network, shift in V4_IN_V6 if reached[0] in network]
    return next((what for what, network in NEVER if any(one in network for one in reached)), None)


@dataclass(frozen=True, slots=True)
class DestinationRules:
    """What the operator says of where workers may be.

    configured: the URLs that his configuration names. He may point them anywhere, but not outside of his own list.
    """

    allow: AllowList = AllowList()
    configured: frozenset[str] = frozenset()

    def refusal(self, url: str, addresses: Sequence[str] = ()) -> str | None:
        """Why a worker may not be there; None when it may.

        addresses: all that its name stands for. Without them only what can be said before looking it up is said.
        """
        try:
            destination = destination_of(url)
        except ValueError as error:
            return str(error)
        literal = literal_address(destination.host)
        if literal is not None:
            addresses = (literal,)
        problem = None if url in self.configured else _not_from_outside(destination, addresses)
        return problem or self._not_in_list(destination, addresses)

    def _not_in_list(self, destination: Destination, addresses: Sequence[str]) -> str | None:
        scheme, host, port, _ = destination
        is_allowed = self.allow.may_allow(scheme, host, port) and all(
            self.allow.allows(scheme, host, address, port) for address in addresses
        )
        if is_allowed:
            return None
        where = "" if literal_address(host) or not addresses else f", which is {', '.join(addresses[:4])}"
        return f"{scheme}://{host}:{port}{where} is not in worker_url_allow; allowed are {self.allow}"


def _not_from_outside(destination: Destination, addresses: Sequence[str]) -> str | None:
    if destination.path:
        return f"a worker with a path ({destination.path}) is taken from the configuration only; name it in worker_urls"
    for address in addresses:
        what = never_allowed(address)
        if what is not None:
            where = "" if address == destination.host else f"{destination.host} is "
            return f"{where}{address}, {what}: a worker there is taken from the configuration only (worker_urls)"
    return None
