"""The schema, field by field, as flags, variables and files need it; and texts turned into values of a field's type."""

import json
import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr

from app.config.errors import shown
from app.config.schema import Config, Offer

VARIABLE_PREFIX = "WARMSET_"

TRUE = ("true", "yes", "on", "1")
FALSE = ("false", "no", "off", "0")


class Kind(StrEnum):
    """What a value is. The text says what a wrong one should have been."""

    TEXT = "text"
    BOOL = "true or false"
    INT = "a whole number"
    FLOAT = "a number"
    LIST = "a list"
    MAP = "a mapping"
    TABLE = "a mapping of mappings"


@dataclass(frozen=True, slots=True)
class Setting:
    """One key. `flags` are its own flag and the further ones; `secret` ones are never shown, not even when wrong."""

    key: str
    kind: Kind
    optional: bool
    secret: bool
    default: Any
    description: str
    offer: Offer

    @property
    def flags(self) -> tuple[str, ...]:
        return (f"--{self.key.replace('_', '-')}", *self.offer.flags)

    @property
    def variable(self) -> str:
        return VARIABLE_PREFIX + self.key.upper()


def from_texts(setting: Setting, texts: Sequence[str]) -> Any:
    """The value that flags or a variable name. Lists and mappings take every text, others the last one.

    Only the form is checked here; bounds and names are the schema's. Raises ValueError saying what is allowed.
    """
    if setting.kind is Kind.LIST:
        return _items(texts)
    if setting.kind is Kind.MAP:
        return _pairs(_items(texts))
    text = texts[-1]
    match setting.kind:
        case Kind.TABLE:
            return _table(text)
        case Kind.BOOL:
            if text.lower() not in TRUE + FALSE:
                raise ValueError(f"must be true or false, not {shown(text)}")
            return text.lower() in TRUE
        case Kind.INT:
            if not re.fullmatch(r"[+-]?[0-9]{1,20}", text.strip()):
                raise ValueError(f"must be a whole number, not {shown(text)}")
            return int(text)
        case Kind.FLOAT:
            if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", text.strip(), re.IGNORECASE):
                raise ValueError(f"must be a number, not {shown(text)}")
            return float(text)
        case _:
            return text


def from_document(setting: Setting, value: Any) -> Any:
    """The value that the file holds, in the schema's types. A list or mapping may be written as a variable's text."""
    if setting.kind in (Kind.LIST, Kind.MAP, Kind.TABLE) and isinstance(value, str):
        return from_texts(setting, [value])
    if setting.kind is Kind.LIST and isinstance(value, list):
        return tuple(value)
    return value


def _items(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(item.strip() for text in texts for item in text.split(",") if item.strip())


def _pairs(items: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        name, value = name.strip(), value.strip()
        if not (equals and name and value):
            raise ValueError(f"must be alias=model, not {shown(item)}")
        if name in pairs:
            raise ValueError(f"{shown(name)} is there twice")
        pairs[name] = value
    return pairs


def _table(text: str) -> dict[str, Any]:
    try:
        table = json.loads(text)
    except ValueError:
        raise ValueError(f"must be {Kind.TABLE.value} in JSON, not {shown(text)}") from None
    if not isinstance(table, dict):
        raise ValueError(f"must be {Kind.TABLE.value} in JSON, not {shown(text)}")
    return table


def _inner_types(annotation: Any) -> set[Any]:
    """The types that an annotation is made of, without Annotated and Union around them."""
    if get_origin(annotation) is Annotated:
        return _inner_types(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return set().union(*map(_inner_types, get_args(annotation)))
    if get_origin(annotation) is tuple:
        return {tuple} | _inner_types(get_args(annotation)[0])
    return {get_origin(annotation) or annotation}


def _is_table(annotation: Any) -> bool:
    """Whether it is a mapping to something with members of its own."""
    arguments = get_args(annotation)
    return get_origin(annotation) is Mapping and issubclass(arguments[1], BaseModel)


def _kind(inner: set[Any]) -> Kind:
    kinds = {bool: Kind.BOOL, int: Kind.INT, float: Kind.FLOAT, tuple: Kind.LIST, Mapping: Kind.MAP}
    return next((kind for type_, kind in kinds.items() if type_ in inner), Kind.TEXT)


def _settings() -> dict[str, Setting]:
    settings = {}
    for key, field in Config.model_fields.items():
        inner = _inner_types(field.annotation)
        settings[key] = Setting(
            key=key,
            kind=Kind.TABLE if _is_table(field.annotation) else _kind(inner),
            optional=type(None) in inner,
            secret=SecretStr in inner,
            default=field.get_default(call_default_factory=True),
            description=field.description or "",
            offer=next(item for item in field.metadata if isinstance(item, Offer)),
        )
    return settings


SETTINGS = _settings()
"""Every key, in the order of the schema."""
