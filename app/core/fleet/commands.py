"""What the router asks for. The shell executes these and reports back with events.

A Dispatch may answer a request just now, or one that waited: its token tells.
"""

from dataclasses import dataclass

from app.core.fleet.events import MarkTold
from app.core.fleet.reasons import ChoiceReason, RefusalReason
from app.core.fleet.worker import Worker


@dataclass(slots=True)
class Dispatch:
    """Send the request to `worker`; load is reserved there under `token` until it fails or finishes."""

    token: int
    worker: Worker
    policy: str
    reason: ChoiceReason


@dataclass(slots=True)
class Refuse:
    """Tell the client no. `detail` says what the reason leaves open; it never holds text of a prompt.

    retry_after_s: when it may be otherwise, where that is known.
    """

    reason: RefusalReason
    detail: str = ""
    retry_after_s: float | None = None


@dataclass(slots=True)
class Enqueue:
    """Nobody can take the request now. Under `token` a Dispatch or a Dismiss follows, unless RequestLeft does."""

    token: int


@dataclass(slots=True)
class Dismiss:
    """Tell the client of a request that waited no."""

    token: int
    refuse: Refuse


@dataclass(slots=True)
class Probe:
    """Probe `/health` of a worker now, not at the next turn: a connection to it has just failed."""

    worker_id: str


@dataclass(slots=True)
class TellMark:
    """Tell the other routers that we have evidence against this worker."""

    mark: MarkTold


Command = Dispatch | Refuse | Enqueue | Dismiss | Probe | TellMark
