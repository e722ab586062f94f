"""The keys file: who may send requests, and how much. YAML; holds digests of keys, never a key.

    tenants:                          # limits of whole tenants; one that is not named has none
      acme: {requests_per_minute: 600, tokens_per_minute: 200000, concurrency: 50, in_flight_bytes: 67108864}
    keys:
      - name: acme-2026-12            # for people, logs and /status
        tenant: acme
        sha256: 9f86d0…               # of the key; `warmset key new` prints it
        models: ["llama-*"]           # glob patterns; default: every model
        planes: [data]                # data, admin; default: data
        not_before: 2026-12-01T00:00:00Z
        expires: 2027-06-01T00:00:00Z
        limits: {requests_per_minute: 60}
        priority: high                # highest that x-warmset-priority may ask for; default: critical

All problems are told at once, and none of them quotes a value: a key that was pasted in place of its digest would end
up in a log.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from app.config.document import read_document
from app.config.errors import ConfigError, Problem
from app.core.fleet.priority import BY_LABEL
from app.core.fleet.tenant import UNLIMITED, Grant, KeySet, Limits, Plane

MAX_KEYS = 10_000


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._@:-]{0,99}", text):
        raise ValueError("must be 1 to 100 letters, digits and . _ @ : - and begin with a letter or digit")
    return text


def _digest(text: str) -> str:
    if not re.fullmatch(r"[0-9a-fA-F]{64}", text):
        raise ValueError("must be the 64 hexadecimal digits of a SHA-256; never write the key itself here")
    return text


def _instant(value: Any) -> Any:
    """YAML has made a date of what looks like one; without a zone it is UTC."""
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value


Name = Annotated[str, AfterValidator(_name)]
Instant = Annotated[AwareDatetime, BeforeValidator(_instant)]
PerMinute = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=1, le=2**53)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class _Limits(_Entry):
    requests_per_minute: PerMinute | None = None
    tokens_per_minute: PerMinute | None = None
    concurrency: Whole | None = None
    in_flight_bytes: Whole | None = None

    def value(self) -> Limits:
        return Limits(**dict(self))


class _Key(_Entry):
    name: Name
    tenant: Name
    sha256: Annotated[str, AfterValidator(_digest)]
    models: Annotated[list[str], Field(min_length=1, max_length=1000)] = ["*"]
    planes: Annotated[list[Literal["data", "admin"]], Field(min_length=1)] = ["data"]
    not_before: Instant | None = None
    expires: Instant | None = None
    limits: _Limits | None = None
    priority: Literal["low", "normal", "high", "critical"] = "critical"

    def value(self) -> Grant:
        return Grant(
            name=self.name,
            tenant=self.tenant,
            digest=bytes.fromhex(self.sha256),
            models=tuple(self.models),
            planes=tuple(map(Plane, self.planes)),
            not_before=self.not_before.timestamp() if self.not_before else None,
            expires=self.expires.timestamp() if self.expires else None,
            limits=self.limits.value() if self.limits else UNLIMITED,
            priority=BY_LABEL[self.priority],
        )


class _File(_Entry):
    tenants: dict[Name, _Limits] = {}
    keys: Annotated[list[_Key], Field(max_length=MAX_KEYS)] = []


def read_keys_file(path: Path) -> KeySet:
    """The keys and limits of the file. Raises ConfigError with everything that is wrong."""
    entries, problems = read_document(path)
    if not entries and not problems:
        # Also what a reader sees of a file that is being written just now.
        problems = [Problem(str(path), "the file is empty; `keys: []` says that there are none")]
    return keys_of({entry.key: entry.value for entry in entries if entry.value is not None}, f"{path}, ", problems)


def keys_of(content: Mapping[str, Any], where: str, problems: Sequence[Problem] = ()) -> KeySet:
    """The keys and limits of a file with this content. Raises ConfigError with everything that is wrong.

    where: put before each place. problems: what was found wrong already.
    """
    try:
        file = _File(**content)
    except ValidationError as error:
        raise ConfigError([*problems, *(_told(where, detail) for detail in error.errors(include_url=False))]) from None
    problems = [
        *problems,
        *_repeated(where, "name", [key.name for key in file.keys]),
        *_repeated(where, "sha256", [key.sha256.lower() for key in file.keys]),
    ]
    if problems:
        raise ConfigError(problems)
    tenants = {tenant: limits.value() for tenant, limits in file.tenants.items()}
    return KeySet(tuple(key.value() for key in file.keys), tenants)


def keys_file_stamp(path: Path) -> tuple[int, int, int] | None:
    """Changes when the file does, also when a link to it is moved to another file; None while it is not there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def read_hash_keys(path: Path) -> list[str]:
    """The lines of a file that holds one or two tenant hash keys. Raises ConfigError."""
    try:
        lines = path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        cause = getattr(error, "strerror", None) or "is not UTF-8 text"
        raise ConfigError([Problem(str(path), f"cannot be read: {cause}")]) from None
    problem = hash_keys_problem(lines)
    if problem is not None:
        raise ConfigError([Problem(str(path), problem)])
    return lines


def hash_keys_problem(keys: Sequence[str]) -> str | None:
    """What is wrong with these as tenant hash keys, or None."""
    if not 1 <= len(keys) <= 2:
        return "must hold one key, or two during rotation of which the first is used"
    if min(len(key.encode()) for key in keys) < 16:
        return "a tenant hash key must have at least 16 characters; `openssl rand -hex 32` makes one"
    return None


def _told(where: str, detail: Any) -> Problem:
    place = ".".join(str(part + 1) if isinstance(part, int) else str(part)[:100] for part in detail["loc"])
    context = detail.get("ctx", {})
    words = str(context["error"]) if detail["type"] == "value_error" else detail["msg"]
    return Problem(where + place, words)


def _repeated(where: str, what: str, values: list[str]) -> list[Problem]:
    seen: set[str] = set()
    problems = []
    for number, value in enumerate(values, 1):
        if value in seen:
            problems.append(Problem(f"{where}keys.{number}.{what}", "another key has the same"))
        seen.add(value)
    return problems
