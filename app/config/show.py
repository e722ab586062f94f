"""`--print-config`: the effective configuration as the YAML file that would give it."""

from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import BaseModel, SecretStr

from app.config.addresses import masked_store_url
from app.config.errors import MASK
from app.config.schema import Config
from app.config.settings import SETTINGS


def render(config: Config) -> str:
    """YAML with every key under its heading. Secrets are masked; everything else loads to the same values again."""
    lines: list[str] = []
    heading = ""
    for setting in SETTINGS.values():
        if setting.offer.heading != heading:
            heading = setting.offer.heading
            lines.append(f"\n# {heading}\n" if lines else f"# {heading}\n")
        value = _plain(setting.key, getattr(config, setting.key))
        lines.append(yaml.safe_dump({setting.key: value}, sort_keys=False, allow_unicode=True, width=1000))
    return "".join(lines)


def _plain(key: str, value: Any) -> Any:
    if isinstance(value, SecretStr):
        return masked_store_url(value.get_secret_value()) if key == "redis_url" else MASK
    if isinstance(value, tuple):
        return [_plain(key, item) for item in value]
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_none=True)
    return {name: _plain(key, item) for name, item in value.items()} if isinstance(value, Mapping) else value
