"""A worker: one addressable engine replica, as discovery and the worker itself describe it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.core.fleet.engine import Engine


@dataclass(frozen=True, slots=True)
class Worker:
    """One incarnation of one worker.

    id: stable name of the address, `host:port` (plus path); safe in a URL path and as a metric label.
    url: origin (scheme, host, port and optional path prefix) without a trailing slash.
    incarnation: changes when another process answers at the same address; a fact about an older one is ignored.
    models: served model id -> the worker's own entry of `/v1/models`, as JSON bytes; empty while not yet known.
    engine: what runs there, as far as it is known.
    address: the IP address that connections go to, whatever the URL's name is said to stand for since; "" while not
    known, and then nothing but a URL that names an address itself is connected to.
    """

    id: str
    url: str
    incarnation: str
    models: Mapping[str, bytes] = field(default_factory=dict)
    engine: Engine = field(default_factory=Engine)
    address: str = ""
