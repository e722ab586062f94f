"""Every refusal of the gateway's own: one table from reason to status, OpenAI type and code, and what to do next.

Errors of a worker are not in it: they pass as they came.
"""

from enum import StrEnum
from typing import NamedTuple

from app.core.fleet.reasons import RefusalReason


class EdgeReason(StrEnum):
    """Why a request is refused, or its answer ended, without a decision of the router."""

    MALFORMED_HTTP = "malformed_http"
    HEAD_TOO_LARGE = "head_too_large"
    TARGET_TOO_LONG = "target_too_long"
    HEAD_TIMEOUT = "head_timeout"
    BODY_TIMEOUT = "body_timeout"
    TOO_MANY_CONNECTIONS = "too_many_connections"
    TOO_MANY_CLIENT_CONNECTIONS = "too_many_client_connections"
    WRITE_STALL = "write_stall"
    OVERLOADED = "overloaded"
    UNAUTHORIZED = "unauthorized"
    WRONG_PLANE = "wrong_plane"
    MODEL_NOT_ALLOWED = "model_not_allowed"
    RATE_LIMITED = "rate_limit_exceeded"
    UNKNOWN_PATH = "unknown_path"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    BODY_TOO_LARGE = "body_too_large"
    INVALID_BODY = "invalid_body"
    INVALID_HEADER = "invalid_header"
    MODEL_MISSING = "model_missing"
    SHUTTING_DOWN = "shutting_down"
    STREAM_BROKEN = "stream_broken"
    WORKER_ERROR = "worker_error"
    NOT_A_STREAM = "worker_not_a_stream"
    PARTS_UNFIT = "parts_unfit"
    BATCH_TOO_LARGE = "batch_too_large"
    METADATA_TOO_LARGE = "metadata_too_large"
    INTERNAL = "internal"


Reason = RefusalReason | EdgeReason


class Shape(NamedTuple):
    """How a reason looks to a client. `retry_after_s` says that, and when, the same request may work; `is_final` that
    it will not, so that an SDK which would send it again by itself does not."""

    status: int
    type: str
    code: str
    message: str
    param: str | None = None
    retry_after_s: int | None = None
    is_final: bool = False


SHAPES: dict[Reason, Shape] = {
    EdgeReason.MALFORMED_HTTP: Shape(
        400, "invalid_request_error", "malformed_http", "This is not a valid HTTP request."
    ),
    EdgeReason.HEAD_TOO_LARGE: Shape(
        431, "invalid_request_error", "head_too_large", "The request's headers are more or larger than accepted here."
    ),
    EdgeReason.TARGET_TOO_LONG: Shape(
        414, "invalid_request_error", "target_too_long", "The request's URL is longer than accepted here."
    ),
    EdgeReason.HEAD_TIMEOUT: Shape(
        408, "invalid_request_error", "head_timeout", "The request's headers did not arrive in time. Send it again."
    ),
    EdgeReason.BODY_TIMEOUT: Shape(
        408, "invalid_request_error", "body_timeout", "The request's body arrived too slowly. Send it again."
    ),
    EdgeReason.TOO_MANY_CONNECTIONS: Shape(
        503,
        "server_error",
        "too_many_connections",
        "This gateway has as many connections as it accepts. Reuse connections, and try again.",
        retry_after_s=1,
    ),
    EdgeReason.TOO_MANY_CLIENT_CONNECTIONS: Shape(
        429,
        "rate_limit_error",
        "too_many_client_connections",
        "This client has as many connections as this gateway accepts of one. Reuse connections, and try again.",
        retry_after_s=1,
    ),
    # Counted only: who reads nothing cannot be told.
    EdgeReason.WRITE_STALL: Shape(408, "invalid_request_error", "write_stall", "The client read nothing for too long."),
    EdgeReason.OVERLOADED: Shape(
        503,
        "server_error",
        "overloaded",
        "This gateway holds as many requests as it can. Nothing was started; try again shortly.",
        retry_after_s=1,
    ),
    EdgeReason.UNAUTHORIZED: Shape(
        401,
        "authentication_error",
        "invalid_api_key",
        "No valid API key. Send the key that the operator of this gateway gave you as 'Authorization: Bearer KEY'.",
    ),
    EdgeReason.WRONG_PLANE: Shape(
        403, "permission_error", "wrong_plane", "This key is not for this listener. Use one that has its plane."
    ),
    EdgeReason.MODEL_NOT_ALLOWED: Shape(
        403,
        "permission_error",
        "model_not_allowed",
        "This key is not for this model. GET /v1/models lists those that it is for.",
        param="model",
    ),
    # Retry-After is not in the table, since it depends on how far the limit is used up.
    EdgeReason.RATE_LIMITED: Shape(
        429,
        "rate_limit_error",
        "rate_limit_exceeded",
        "A limit of this key or its tenant is reached. Send the request again after the time in Retry-After.",
    ),
    EdgeReason.UNKNOWN_PATH: Shape(
        404, "invalid_request_error", "unknown_path", "This gateway does not serve this path."
    ),
    EdgeReason.METHOD_NOT_ALLOWED: Shape(
        405, "invalid_request_error", "method_not_allowed", "This path does not take this method; see the Allow header."
    ),
    EdgeReason.BODY_TOO_LARGE: Shape(
        413, "invalid_request_error", "body_too_large", "The request body is larger than this gateway accepts."
    ),
    EdgeReason.INVALID_BODY: Shape(400, "invalid_request_error", "invalid_body", "The request body is not valid."),
    EdgeReason.INVALID_HEADER: Shape(
        400, "invalid_request_error", "invalid_header", "A header of the request is not valid."
    ),
    EdgeReason.MODEL_MISSING: Shape(
        404,
        "invalid_request_error",
        "model_not_found",
        "The request names no model. Set 'model' to one of those that GET /v1/models lists.",
        param="model",
    ),
    EdgeReason.SHUTTING_DOWN: Shape(
        503, "server_error", "shutting_down", "This gateway is shutting down. Send the request again.", retry_after_s=1
    ),
    EdgeReason.STREAM_BROKEN: Shape(
        502,
        "server_error",
        "worker_stream_broken",
        "The worker's answer ended before it was complete. The events until here are whole; send the request again "
        "for a whole answer.",
    ),
    # These two are told in a stream that was begun to keep it alive; otherwise a worker's answer passes as it came.
    EdgeReason.WORKER_ERROR: Shape(
        502, "server_error", "worker_error", "The worker answered with an error, after the stream was begun."
    ),
    EdgeReason.NOT_A_STREAM: Shape(
        502,
        "server_error",
        "worker_not_a_stream",
        "The worker answered with something else than an event stream. Send the request without 'stream'.",
    ),
    EdgeReason.PARTS_UNFIT: Shape(
        502,
        "server_error",
        "parts_unfit",
        "The workers' answers to the parts of this batch do not fit together. Send it as smaller batches, which are "
        "not cut up.",
    ),
    EdgeReason.BATCH_TOO_LARGE: Shape(
        503,
        "server_error",
        "batch_too_large",
        "The answers to the parts of this batch are more than this gateway can hold now. Send it as smaller batches.",
        retry_after_s=1,
    ),
    EdgeReason.METADATA_TOO_LARGE: Shape(
        400,
        "invalid_request_error",
        "metadata_too_large",
        "The header 'metadata' of this answer is larger than this gateway passes on, since many clients cannot read "
        "it. Ask for 'bytes_only', which has none, or send fewer inputs at a time.",
        param="encoding_format",
    ),
    EdgeReason.INTERNAL: Shape(
        500, "server_error", "internal_error", "The gateway failed. Its log has the cause under this request's id."
    ),
    RefusalReason.MODEL_NOT_FOUND: Shape(
        404,
        "invalid_request_error",
        "model_not_found",
        "The model does not exist here. GET /v1/models lists those that do.",
        param="model",
    ),
    RefusalReason.PATH_NOT_SERVED: Shape(
        404,
        "invalid_request_error",
        "path_not_served",
        "The workers of this model do not serve this path. Use one of those that they do.",
    ),
    RefusalReason.TASK_NOT_SERVED: Shape(
        400,
        "invalid_request_error",
        "task_not_served",
        "This model does not do that task. Use one of its paths, or another model.",
        param="model",
    ),
    RefusalReason.NO_WORKERS: Shape(
        503, "server_error", "no_workers", "No worker can serve this model yet. Try again shortly.", retry_after_s=2
    ),
    # Retry-After is not in the table: it is when the first of the workers may take requests again.
    RefusalReason.OVERLOADED: Shape(
        429,
        "rate_limit_error",
        "workers_overloaded",
        "Every worker of this model says that it takes no more now. Nothing was started; send the request again after "
        "the time in Retry-After.",
    ),
    RefusalReason.QUEUE_FULL: Shape(
        429,
        "rate_limit_error",
        "queue_full",
        "As many requests wait for this model as may. Nothing was started; try again shortly.",
        retry_after_s=1,
    ),
    RefusalReason.QUEUE_EXPIRED: Shape(
        503,
        "server_error",
        "queue_expired",
        "No worker of this model could take the request within the time that it may wait. Nothing was started; try "
        "again shortly.",
        retry_after_s=2,
    ),
    RefusalReason.UNREACHABLE: Shape(
        503,
        "server_error",
        "workers_unreachable",
        "No worker of this model could be reached. Nothing was started; try again shortly.",
        retry_after_s=2,
    ),
    RefusalReason.NO_ANSWER: Shape(
        502,
        "server_error",
        "worker_no_answer",
        "The worker closed the connection, or answered nothing that is HTTP. The request may have run; "
        "send it again if that is safe.",
    ),
    RefusalReason.TIMEOUT: Shape(
        504,
        "server_error",
        "request_timeout",
        "The worker did not answer within the time that this gateway allows. Ask for less, or for a longer limit.",
        is_final=True,  # three times as long for the same end, and three times the work of a worker
    ),
}
