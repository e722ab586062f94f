"""How many connections each client has, of those that one process accepted."""

import ipaddress


class Clients:
    """Counts connections by client. most: of one client, 0 for no limit, and then nothing is counted."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[str, int] = {}

    def enter(self, address: str) -> str | None:
        """Count a connection from `address`; whom it is counted for, or None when that one has as many as it may."""
        if not self._most:
            return ""
        client = client_of(address)
        present = self._open.get(client, 0)
        if present >= self._most:
            return None
        self._open[client] = present + 1
        return client

    def leave(self, client: str | None) -> None:
        """A connection ended. client: what `enter` said of it, None when it was not let in."""
        if client in self._open:
            self._open[client] -= 1
            if not self._open[client]:
                del self._open[client]

    @property
    def known(self) -> int:
        """Clients with a connection."""
        return len(self._open)


def client_of(address: str) -> str:
    """Whose connections are counted together: an IPv4 address, or a /64 of IPv6, since one host has all of that."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    return str(ip.ipv4_mapped or ipaddress.IPv6Address(int(ip) >> 64 << 64))
