"""One HTTP exchange with a worker, as those who ask for it and those who carry it out both see it."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.core.fleet.reasons import Failure

Header = tuple[bytes, bytes]


@dataclass(slots=True)
class Call:
    """A request to a worker. `target` is path and query; `headers` are ready to send, names in lower case."""

    method: bytes
    target: bytes
    headers: Sequence[Header]
    body: bytes


class UpstreamError(Exception):
    """A call failed. `failure` says how much may have happened on the worker; the text is for logs and operators."""

    def __init__(self, failure: Failure, text: str) -> None:
        super().__init__(text)
        self.failure = failure


class StreamBroken(Exception):
    """An answer ended before it was complete: closed, malformed, or out of time. Nothing of it may be repeated."""
