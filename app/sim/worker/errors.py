"""Refusals as vLLM words them: every error body of the simulated worker is made here."""

from typing import Any

import orjson

_TYPES = {
    400: "BadRequestError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    500: "InternalServerError",
    503: "Service Unavailable",
}
# Of a long list of complaints, and of one complaint, this much is told.
_MOST_COMPLAINTS = 10
_MOST_CHARACTERS = 1000


class ApiError(Exception):
    """An answer other than 200, as vLLM's engine layer shapes it: `{"error": {message, type, param, code}}`."""

    def __init__(self, status: int, message: str, *, param: str | None = None, kind: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.kind = kind or _TYPES[status]

    @property
    def is_of_validation(self) -> bool:
        """Whether the web framework refused it, before any handler."""
        return self.kind == "Bad Request"

    def body(self) -> bytes:
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}
        return orjson.dumps({"error": error})


class ClientGone(Exception):
    """The client closed the connection, so there is nobody to answer."""


def bad_value(message: str, parameter: str, value: object = None) -> ApiError:
    """A parameter that the engine layer refuses; it repeats the name, and the value where there is one."""
    shown = f"parameter={parameter}" if value is None else f"parameter={parameter}, value={value}"
    return ApiError(400, f"{message} ({shown})", param=parameter)


def invalid_body(complaints: list[dict[str, Any]]) -> ApiError:
    """What the web framework refuses before any handler: one line per complaint, the first one's place as `param`."""
    noun = "errors" if len(complaints) > 1 else "error"
    told = [_shortened(repr(complaint)) for complaint in complaints[:_MOST_COMPLAINTS]]
    if len(complaints) > _MOST_COMPLAINTS:
        told.append(f"...and {len(complaints) - _MOST_COMPLAINTS} more {noun}")
    message = "\n  ".join([f"{len(complaints)} validation {noun}:", *told])
    return ApiError(400, message, param=complaints[0]["loc"], kind="Bad Request")


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}...[truncated]"


def unsupported_media_type() -> ApiError:
    message = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"
    return ApiError(400, message, kind="Bad Request")


def busy() -> ApiError:
    return ApiError(
        503,
        "The engine is currently busy and cannot accept new requests. "
        "Please try again later or on a different instance.",
    )


def shutting_down() -> ApiError:
    return ApiError(500, "cannot schedule new futures after shutdown")


def aborted() -> ApiError:
    return ApiError(500, "The request was aborted by the shutdown of the engine.")
