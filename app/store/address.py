"""The store's URL: what of it the client needs, and how it is shown."""

from typing import Any
from urllib.parse import urlsplit

from redis.asyncio.connection import AbstractConnection, Connection, parse_url

OPTIONS = frozenset(
    {
        "db",
        "username",
        "password",
        "ssl_ca_certs",
        "ssl_ca_path",
        "ssl_certfile",
        "ssl_keyfile",
        "ssl_cert_reqs",
        "ssl_check_hostname",
    }
)
"""Options that a URL may carry behind `?`. Time limits and pool sizes are not among them: the design sets those."""


class Address:
    """`redis://`, `rediss://` or `unix://`, with user, password, database and TLS options as redis-py reads them.

    shown: the address without user, password and options, for logs, /status and repr.
    """

    def __init__(self, url: str) -> None:
        """Raises ValueError, which never quotes the URL: a password with a slash ends up in odd parts of it."""
        try:
            options: dict[str, Any] = dict(parse_url(url))
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise ValueError(
                "the store's URL must be redis://, rediss:// or unix://, with its password quoted"
            ) from None
        self.connection_class: type[AbstractConnection] = options.pop("connection_class", Connection)
        unknown = sorted(set(options) - OPTIONS - {"host", "port", "path"})
        if unknown:
            raise ValueError(f"the store's URL has options that are not known: {', '.join(unknown)}")
        if parts.scheme == "unix" and not options.get("path"):
            raise ValueError("the store's URL names no socket: unix:///path/to/socket")
        self.options = options
        if parts.scheme == "unix":
            self.shown = f"unix://{options['path']}"
        else:
            database = options.get("db", 0)
            shown_host = f"[{host}]" if host and ":" in host else host or "localhost"
            self.shown = f"{parts.scheme}://{shown_host}:{port or 6379}/{database}"

    @property
    def secrets(self) -> tuple[str, ...]:
        password = self.options.get("password")
        return (password,) if password else ()

    def __repr__(self) -> str:
        return f"Address({self.shown})"
