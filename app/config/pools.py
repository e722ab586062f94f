"""What may serve a model: `pools` of the configuration, by model."""

from typing import Annotated

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from app.config.errors import shown
from app.core.fleet.pin import Pin


def _versions(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        raise ValueError(f'must be a range of versions such as ">=0.30,<0.33", not {shown(text)}') from None
    return text


class PoolConfig(BaseModel):
    """One pool. A worker that is not as it says is registered, and gets no requests for the model."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)

    engine: Annotated[str | None, Field(min_length=1)] = None
    engine_version: Annotated[str, Field(min_length=1), AfterValidator(_versions)] | None = None
    model_revision: Annotated[str | None, Field(min_length=1)] = None
    spec_decode: bool | None = None

    def pin(self) -> Pin:
        versions = VersionRange(self.engine_version) if self.engine_version is not None else None
        return Pin(self.engine, versions, self.model_revision, self.spec_decode)


class VersionRange:
    """Versions by PEP 440. Release candidates and local builds ("0.32.0+cpu") count: engines are run as both."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._set = SpecifierSet(text)

    def __str__(self) -> str:
        return self._text

    def contains(self, version: str) -> bool:
        try:
            return self._set.contains(version, prereleases=True)
        except InvalidVersion:
            return False
