"""What an exchange with a worker says of it: the one table from what happened to what it counts as.

Source: Envoy's outlier detection and Finagle's failure accrual agree that what the client did, and what the client
asked for, says nothing of the worker; Linkerd and gRPC that an explicit "not now" is no failure.
"""

from enum import StrEnum

from app.core.fleet.reasons import Failure, MarkKind, Outcome


class Evidence(StrEnum):
    """What one exchange counts as."""

    SUCCESS = "success"
    OVERLOAD = "overload"
    """The worker said that it takes no more now. Nothing ran."""
    FAILURE = "failure"
    """The worker answered that it failed, or broke its answer off."""
    AMBIGUOUS = "ambiguous"
    """Nothing came in time: a worker that hangs, or one that has a lot to think about. Half a failure."""
    UNREACHABLE = "unreachable"
    """No connection, or none that lived until a first byte."""
    NEUTRAL = "neutral"
    """The client's own doing, or ours: a bad request, or somebody left. Says nothing of the worker, good or bad."""
    CONFIG = "config"
    """The worker does not accept the gateway's own credentials: an operator must act, and no other worker helps."""


MARKED_AS: dict[Evidence, MarkKind] = {
    Evidence.OVERLOAD: MarkKind.OVERLOAD,
    Evidence.FAILURE: MarkKind.FAILING,
    Evidence.AMBIGUOUS: MarkKind.FAILING,
    Evidence.UNREACHABLE: MarkKind.UNREACHABLE,
}
"""Which mark evidence makes: that of overload at once, the others when there is enough of it (accrual.py)."""

FAILURE_WEIGHT: dict[Evidence, float] = {Evidence.FAILURE: 1.0, Evidence.AMBIGUOUS: 0.5}

OF_FAILURE: dict[Failure, Evidence] = {
    Failure.CONNECT: Evidence.UNREACHABLE,
    Failure.NO_ANSWER: Evidence.FAILURE,
    Failure.TIMEOUT: Evidence.AMBIGUOUS,
}

OF_OUTCOME: dict[Outcome, Evidence] = {
    Outcome.SERVED: Evidence.NEUTRAL,  # its head was the success
    Outcome.CLIENT_GONE: Evidence.NEUTRAL,
    Outcome.FAILED: Evidence.NEUTRAL,
    Outcome.BROKEN: Evidence.FAILURE,
    Outcome.TIMED_OUT: Evidence.AMBIGUOUS,
}

_OF_STATUS: dict[int, Evidence] = {
    401: Evidence.CONFIG,
    403: Evidence.CONFIG,
    407: Evidence.CONFIG,
    408: Evidence.AMBIGUOUS,
    429: Evidence.OVERLOAD,
    501: Evidence.NEUTRAL,
    505: Evidence.NEUTRAL,
    529: Evidence.OVERLOAD,
}
"""Where a status does not count as its hundred does. 501 and 505: the request asks for what this engine has not."""


def of_status(status: int, *, names_a_time: bool = False, is_engines_own: bool = False) -> Evidence:
    """What an answer's status counts as.

    names_a_time: it has a Retry-After. is_engines_own: it is JSON, as errors of engines are. A 503 of either kind is a
    worker that will take requests again (vLLM's, when `--max-num-queued-reqs` is reached, names no time); any other is
    what a proxy says for a worker that is not there.
    """
    if status < 400:
        return Evidence.SUCCESS
    if status == 503 and (names_a_time or is_engines_own):
        return Evidence.OVERLOAD
    return _OF_STATUS.get(status) or (Evidence.NEUTRAL if status < 500 else Evidence.FAILURE)
