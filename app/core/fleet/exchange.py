"""One HTTP exchange with a worker, as those who ask for it and those who carry it out both see it."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from app.core.fleet.reasons import Failure

Header = tuple[bytes, bytes]


@dataclass(slots=True)
class Call:
    """A request to a worker. `target` is path and query; `headers` are ready to send, names in lower case.

    rest: where more of the body comes from, piece by piece and b"" at its end; None when `body` is all. length: of all
    of it then, None when nobody knows. What was taken of `rest` cannot be taken again.
    """

    method: bytes
    target: bytes
    headers: Sequence[Header]
    body: bytes
    rest: Callable[[], Awaitable[bytes]] | None = None
    length: int | None = None


class UpstreamError(Exception):
    """A call failed. `failure` says how much may have happened on the worker; the text is for logs and operators."""

    def __init__(self, failure: Failure, text: str) -> None:
        super().__init__(text)
        self.failure = failure


class StreamBroken(Exception):
    """An answer ended before it was complete: closed, malformed, or out of time. Nothing of it may be repeated."""

    def __init__(self, text: str, failure: Failure = Failure.NO_ANSWER) -> None:
        super().__init__(text)
        self.failure = failure


def is_json(headers: Sequence[Header]) -> bool:
    return any(name == b"content-type" and value.lower().startswith(b"application/json") for name, value in headers)


def retry_after_s(headers: Sequence[Header]) -> float | None:
    """Seconds that an answer's Retry-After asks for, None without one that can be read.

    A date is taken against the answer's own Date: so the worker's clock need not be ours.
    """
    values = dict(headers)
    asked = values.get(b"retry-after", b"").strip()
    if asked.isdigit():
        return float(asked)
    with suppress(ValueError, TypeError, KeyError):
        until, now = parsedate_to_datetime(asked.decode()), parsedate_to_datetime(values[b"date"].decode())
        return max(0.0, (until - now).total_seconds())
    return None
