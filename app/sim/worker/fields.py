"""Typed fields of a JSON body, with the complaints that vLLM's validation layer would have about them."""

import json
from typing import Any

import orjson

from app.sim.worker.errors import ApiError, invalid_body

_TRUE = {True, "1", "true", "True", "yes", "on", "t", "y"}
_FALSE = {False, "0", "false", "False", "no", "off", "f", "n"}


def parse(raw: bytes) -> "Fields":
    """The body as fields; 400 for what is not JSON or not an object."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        body = _parse_slowly(raw)
    if not isinstance(body, dict):
        message = "Input should be a valid dictionary or object to extract fields from"
        raise invalid_body([_complaint("model_attributes_type", None, message, body)])
    return Fields(body)


def _parse_slowly(raw: bytes) -> Any:
    """The standard parser decides and words the complaint, since it is the one that vLLM runs: it takes NaN."""
    if not raw:
        raise invalid_body([_complaint("missing", None, "Field required", None)])
    try:
        return json.loads(raw)
    except json.JSONDecodeError as error:
        complaint = _complaint("json_invalid", str(error.pos), "JSON decode error", {})
        raise invalid_body([complaint | {"ctx": {"error": error.msg}}]) from None
    except (UnicodeDecodeError, RecursionError):
        raise ApiError(400, "There was an error parsing the body", kind="Bad Request") from None


class Fields:
    """Reads fields and remembers every complaint; `check()` raises them together.

    A reader returns the default after a complaint, so that reading goes on and all problems are reported at once.
    Numbers are taken as pydantic takes them: digits in a string and whole floats are integers.
    """

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body
        self._complaints: list[dict[str, Any]] = []

    def check(self) -> None:
        if self._complaints:
            raise invalid_body(self._complaints)

    def require(self, *names: str) -> None:
        for name in names:
            if name not in self.body:
                self._complain("missing", name, "Field required", self.body)

    def get(self, name: str) -> Any:
        return self.body.get(name)

    def integer(self, name: str) -> int | None:
        value = self.body.get(name)
        if value is None:
            return None
        if isinstance(value, str):
            try:
                return int(value)
            except ValueError:
                message = "Input should be a valid integer, unable to parse string as an integer"
                self._complain("int_parsing", name, message, value)
                return None
        if isinstance(value, float):
            if value.is_integer():
                return int(value)
            message = "Input should be a valid integer, got a number with a fractional part"
            self._complain("int_from_float", name, message, value)
            return None
        if isinstance(value, int):
            return int(value)
        self._complain_type("int", "integer", name, value)
        return None

    def number(self, name: str) -> float | None:
        value = self.body.get(name)
        if value is None:
            return None
        if isinstance(value, str):
            try:
                return float(value)
            except ValueError:
                message = "Input should be a valid number, unable to parse string as a number"
                self._complain("float_parsing", name, message, value)
                return None
        if isinstance(value, int | float):
            return float(value)
        self._complain_type("float", "number", name, value)
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
            self._complain("bool_parsing", name, "Input should be a valid boolean, unable to interpret input", value)
        else:
            self._complain_type("bool", "boolean", name, value)
        return default

    def text(self, name: str) -> str | None:
        value = self.body.get(name)
        if value is None or isinstance(value, str):
            return value
        self._complain_type("string", "string", name, value)
        return None

    def choice(self, name: str, allowed: tuple[str, ...]) -> str | None:
        """A string out of `allowed`."""
        value = self.body.get(name)
        if value is None or value in allowed:
            return value if isinstance(value, str) else None
        quoted = [f"'{item}'" for item in allowed]
        expected = " or ".join([", ".join(quoted[:-1]), quoted[-1]]) if len(quoted) > 1 else quoted[0]
        complaint = _complaint("literal_error", name, f"Input should be {expected}", value)
        self._complaints.append(complaint | {"ctx": {"expected": expected}})
        return None

    def items(self, name: str) -> list[Any]:
        """A list; [] when it is not there."""
        value = self.body.get(name)
        if value is None or isinstance(value, list):
            return value or []
        self._complain_type("list", "list", name, value)
        return []

    def mapping(self, name: str) -> dict[str, Any]:
        value = self.body.get(name)
        if value is None or isinstance(value, dict):
            return value or {}
        self._complain("dict_type", name, "Input should be a valid dictionary", value)
        return {}

    def _complain(self, kind: str, name: str, message: str, value: object) -> None:
        self._complaints.append(_complaint(kind, name, message, value))

    def _complain_type(self, kind: str, noun: str, name: str, value: object) -> None:
        self._complain(f"{kind}_type", name, f"Input should be a valid {noun}", value)


def _complaint(kind: str, place: str | None, message: str, value: object) -> dict[str, Any]:
    shown = f"<{type(value).__name__} of {len(value)} items>" if isinstance(value, dict | list) else value
    return {"type": kind, "loc": f"body.{place}" if place else "body", "msg": message, "input": shown}
