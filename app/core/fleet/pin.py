"""What the operator allows to serve a model: a worker outside of it stays registered and gets no requests."""

from dataclasses import dataclass
from typing import Protocol

from app.core.fleet.engine import Engine


class Versions(Protocol):
    """A set of versions. `str()` of it is how the operator wrote it."""

    def contains(self, version: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Pin:
    """None allows everything. What an engine does not say is not what was asked for."""

    engine: str | None = None
    versions: Versions | None = None
    revision: str | None = None
    spec_decode: bool | None = None

    def problem(self, engine: Engine) -> str | None:
        """Why this engine may not serve the model, or None."""
        if self.engine is not None and engine.name != self.engine:
            return f"engine is {_said(engine.name)}, and {self.engine} is pinned"
        if self.versions is not None and not (engine.version and self.versions.contains(engine.version)):
            return f"engine_version is {_said(engine.version)}, and {self.versions} is pinned"
        if self.revision is not None and engine.revision != self.revision:
            return f"model_revision is {_said(engine.revision)}, and {self.revision} is pinned"
        if self.spec_decode is not None and engine.spec_decode is not self.spec_decode:
            return f"spec_decode is {_said(engine.spec_decode)}, and {_said(self.spec_decode)} is pinned"
        return None


def _said(value: str | bool | None) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value or "not known"
