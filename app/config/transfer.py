"""A checked configuration on its way to another process of the same version, secrets included."""

from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import BaseModel, SecretStr

from app.config.schema import Config


def to_wire(config: Config) -> dict[str, Any]:
    """As JSON values. Holds the secrets in the clear: send it where nobody else reads."""
    return {key: _plain(value) for key, value in config}


def from_wire(values: dict[str, Any]) -> Config:
    """The same configuration again. It was checked before it was sent, rules between keys included."""
    return Config.model_validate_json(orjson.dumps(values))


def _plain(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, BaseModel):
        return value.model_dump()
    return {name: _plain(item) for name, item in value.items()} if isinstance(value, Mapping) else value
