"""What an operator may set of all this; the rest is fixed, and said where it is used."""

from dataclasses import dataclass, field

from app.core.overload.health import HealthThresholds
from app.core.overload.latch import Thresholds


@dataclass(frozen=True, slots=True)
class OverloadSettings:
    health: HealthThresholds = field(default_factory=HealthThresholds)
    latch: Thresholds = field(default_factory=Thresholds)
