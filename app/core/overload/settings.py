"""What an operator may set of all this; the rest is fixed, and said where it is used."""

from dataclasses import dataclass, field

from app.core.overload.health import HealthThresholds
from app.core.overload.latch import Thresholds
from app.core.overload.waiting_room import QueueSettings


@dataclass(frozen=True, slots=True)
class OverloadSettings:
    health: HealthThresholds = field(default_factory=HealthThresholds)
    latch: Thresholds = field(default_factory=Thresholds)
    queue: QueueSettings = field(default_factory=QueueSettings)
    stall_s: float = 60.0
    """Time without a step after which an engine that has work is taken to be wedged; 0: never."""
    worker_requests: int = 0
    """Requests that a worker has, of everybody, from which on others wait here; 0: it takes any number."""
