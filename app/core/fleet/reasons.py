"""Why: reasons of choices, of refusals and of failures. Each is a metric label, so the sets are closed."""

from enum import StrEnum


class ChoiceReason(StrEnum):
    """Why this worker was picked."""

    ONLY_CANDIDATE = "only_candidate"
    TURN = "turn"
    CHANCE = "chance"
    LOWER_LOAD = "lower_load"
    EQUAL_LOAD = "equal_load"
    KEY = "key"
    NO_KEY = "no_key"
    FAILOVER = "failover"
    """An earlier worker of the ranking could not be reached."""
    PANIC = "panic"
    """Too many workers of the pool are suspected, or none is well: trying may work, refusing cannot."""
    TRIAL = "trial"
    """The worker was marked; this request shows whether it is well again."""
    RETRY = "retry"
    """An earlier worker of the ranking said that it takes no more now."""


class RefusalReason(StrEnum):
    """Why a request gets no worker. `api/errors.py` gives each a status and a body; a test keeps that table total."""

    MODEL_NOT_FOUND = "model_not_found"
    PATH_NOT_SERVED = "path_not_served"
    """The model's workers do the task, but not at this path: an engine of another kind or version."""
    TASK_NOT_SERVED = "task_not_served"
    """The model's workers do not do this at all: a chat model does not classify."""
    NO_WORKERS = "no_workers"
    """The model may exist, but no worker that could serve it is registered and known."""
    OVERLOADED = "workers_overloaded"
    """Every worker that could serve it said just now that it takes no more."""
    QUEUE_FULL = "queue_full"
    """It would have had to wait, and as many wait already as may."""
    QUEUE_EXPIRED = "queue_expired"
    """It waited as long as it may, and no worker could take it."""
    UNREACHABLE = "workers_unreachable"
    """Every worker of the ranking that may be tried was tried, and none took the connection."""
    NO_ANSWER = "worker_no_answer"
    """The worker took the request and closed the connection without an answer. It may have run: not sent again."""
    TIMEOUT = "request_timeout"
    """The time allowed for a whole request ran out before the worker began to answer."""


class Failure(StrEnum):
    """How a dispatch ended without an answer, seen from the connection to the worker."""

    CONNECT = "connect"
    """Refused, timed out or reset before the request was sent: nothing ran, another worker may be asked."""
    NO_ANSWER = "no_answer"
    """Closed or timed out after the request was sent and before the head of an answer: it may have run."""
    TIMEOUT = "timeout"
    """The time that the operator allows for a whole request ran out."""


class Outcome(StrEnum):
    """How an accepted dispatch ended."""

    SERVED = "served"
    CLIENT_GONE = "client_gone"
    FAILED = "failed"
    """The gateway ended it."""
    BROKEN = "broken"
    """The worker broke its answer off."""
    TIMED_OUT = "timed_out"
    """The rest of the worker's answer did not come in time."""


class WaitEnd(StrEnum):
    """How a request's wait for a worker ended."""

    DISPATCHED = "dispatched"
    DISMISSED = "dismissed"
    """Its time was over, or it had to make room."""
    LEFT = "left"
    """Its client went."""


class MarkKind(StrEnum):
    """What a worker is marked for."""

    OVERLOAD = "overload"
    """It said that it takes no more now."""
    FAILING = "failing"
    """Requests to it fail, or nothing comes back."""
    UNREACHABLE = "unreachable"
    """No connection to it can be made."""
