"""Typed fields of a JSON body, with the complaints that vLLM's validation layer would have about them."""

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import orjson

from app.sim.worker.errors import ApiError, invalid_body

T = TypeVar("T")
Complaint = dict[str, Any]

_TRUE = {True, "1", "true", "True", "yes", "on", "t", "y"}
_FALSE = {False, "0", "false", "False", "no", "off", "f", "n"}
_MOST_SHOWN = 200


def parse(raw: bytes) -> Any:
    """The body as JSON; 400 for what is none."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        body = _parse_slowly(raw)
    if body is None:
        raise invalid_body([complaint("missing", "", "Field required", None)])
    return body


def choose(body: Any, forms: "Sequence[Callable[[Fields], T]]") -> T:
    """What the first of `forms` that has no complaint reads; 400 with the complaints of all when none fits.

    So vLLM reads a request that may come in several forms. A form reads the fields in the order in which vLLM declares
    them, since that is the order of the complaints.
    """
    complaints: list[Complaint] = []
    for form in forms:
        fields = Fields(body)
        if not fields.complaints:
            value = form(fields)
            if not fields.complaints:
                return value
        complaints += fields.complaints
    raise invalid_body(complaints)


class Fields:
    """Reads fields and remembers every complaint; `check()` raises them together.

    A reader returns the default after a complaint, so that reading goes on and all problems are reported at once.
    Numbers are taken as pydantic takes them: digits in a string and whole floats are integers.
    """

    def __init__(self, body: Any) -> None:
        self.complaints: list[Complaint] = []
        self.body: dict[str, Any] = body if isinstance(body, dict) else {}
        if not isinstance(body, dict):
            message = "Input should be a valid dictionary or object to extract fields from"
            self.complain("model_attributes_type", "", message, body)

    def check(self) -> None:
        if self.complaints:
            raise invalid_body(self.complaints)

    def require(self, *names: str) -> bool:
        """Whether all are there; complains about those that are not."""
        missing = [name for name in names if name not in self.body]
        for name in missing:
            self.complain("missing", name, "Field required", self.body)
        return not missing

    def get(self, name: str) -> Any:
        return self.body.get(name)

    def integer(self, name: str, *, least: int | None = None) -> int | None:
        value = self.body.get(name)
        return None if value is None else self.as_integer(name, value, least=least)

    def as_integer(self, place: str, value: object, *, least: int | None = None) -> int | None:
        number = None
        if isinstance(value, str):
            try:
                number = int(value)
            except ValueError:
                message = "Input should be a valid integer, unable to parse string as an integer"
                self.complain("int_parsing", place, message, value)
        elif isinstance(value, float) and not value.is_integer():
            message = "Input should be a valid integer, got a number with a fractional part"
            self.complain("int_from_float", place, message, value)
        elif isinstance(value, int | float):
            number = int(value)
        else:
            self.complain_type("int", "integer", place, value)
        if number is not None and least is not None and number < least:
            message = f"Input should be greater than or equal to {least}"
            self.complain("greater_than_equal", place, message, value, ge=least)
            return None
        return number

    def number(self, name: str) -> float | None:
        value = self.body.get(name)
        if value is None:
            return None
        if isinstance(value, str):
            try:
                return float(value)
            except ValueError:
                message = "Input should be a valid number, unable to parse string as a number"
                self.complain("float_parsing", name, message, value)
                return None
        if isinstance(value, int | float):
            return float(value)
        self.complain_type("float", "number", name, value)
        return None

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self.body.get(name)
        if value is None:
            return default
        if isinstance(value, bool | int | str):
            if value in _TRUE:
                return True
            if value in _FALSE:
                return False
            self.complain("bool_parsing", name, "Input should be a valid boolean, unable to interpret input", value)
        else:
            self.complain_type("bool", "boolean", name, value)
        return default

    def text(self, name: str) -> str | None:
        value = self.body.get(name)
        if value is None or isinstance(value, str):
            return value
        self.complain_type("string", "string", name, value)
        return None

    def choice(self, name: str, allowed: tuple[str, ...]) -> str | None:
        """A string out of `allowed`, or null."""
        value = self.body.get(name)
        return None if value is None else self.as_choice(name, value, allowed)

    def setting(self, name: str, allowed: tuple[str, ...], default: str | None = None) -> str:
        """A string out of `allowed`, not null; `default` (or the first of them) when it is not there."""
        default = default or allowed[0]
        return self.as_choice(name, self.body.get(name, default), allowed) or default

    def as_choice(self, place: str, value: object, allowed: tuple[str, ...]) -> str | None:
        if isinstance(value, str) and value in allowed:
            return value
        quoted = [f"'{item}'" for item in allowed]
        expected = " or ".join([", ".join(quoted[:-1]), quoted[-1]]) if len(quoted) > 1 else quoted[0]
        self.complain("literal_error", place, f"Input should be {expected}", value, expected=expected)
        return None

    def items(self, name: str) -> list[Any]:
        """A list; [] when it is not there."""
        value = self.body.get(name)
        if value is None or isinstance(value, list):
            return value or []
        self.complain_type("list", "list", name, value)
        return []

    def integers(self, name: str, *, least: int | None = None) -> list[int]:
        """A list of integers; [] when it is not there."""
        found = [self.as_integer(f"{name}.{at}", item, least=least) for at, item in enumerate(self.items(name))]
        return [number for number in found if number is not None]

    def mapping(self, name: str) -> dict[str, Any]:
        value = self.body.get(name)
        if value is None or isinstance(value, dict):
            return value or {}
        self.complain("dict_type", name, "Input should be a valid dictionary", value)
        return {}

    def complain(self, kind: str, place: str, message: str, value: object, **context: object) -> None:
        self.complaints.append(complaint(kind, place, message, value, **context))

    def complain_type(self, kind: str, noun: str, place: str, value: object) -> None:
        self.complain(f"{kind}_type", place, f"Input should be a valid {noun}", value)

    def complain_value(self, place: str, error: ValueError, value: object) -> None:
        """About what a check beyond types refuses."""
        self.complain("value_error", place, f"Value error, {error}", value, error=error)


def complaint(kind: str, place: str, message: str, value: object, **context: object) -> Complaint:
    """`place` is a path below the body; what is in `context` is told with it."""
    loc = f"body.{place}" if place else "body"
    told: Complaint = {"type": kind, "loc": loc, "msg": message, "input": _shown(value)}
    return told | {"ctx": context} if context else told


def _shown(value: object) -> str:
    if isinstance(value, dict | list):
        return f"<{type(value).__name__} of {len(value)} items>"
    text = str(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}...[truncated]"


def _parse_slowly(raw: bytes) -> Any:
    """The standard parser decides and words the complaint, since it is the one that vLLM runs: it takes NaN."""
    if not raw:
        return None
    try:
        return json.loads(raw)
    except json.JSONDecodeError as error:
        raise invalid_body(
            [complaint("json_invalid", str(error.pos), "JSON decode error", {}, error=error.msg)]
        ) from None
    except (UnicodeDecodeError, RecursionError):
        raise ApiError(400, "There was an error parsing the body", kind="Bad Request") from None
