"""Who may send requests: the key that a request carries, and what it opens."""

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256

from app.api.errors import EdgeReason
from app.core.fleet.exchange import Header
from app.core.fleet.tenant import DEFAULT_TENANT, Grant, Plane
from app.core.tenants.keyring import KeyProblem, Keyring

REASONS = {
    KeyProblem.UNKNOWN: EdgeReason.UNAUTHORIZED,
    # What is wrong with an old key is told to nobody: whoever found one need not learn that it was good once.
    KeyProblem.EXPIRED: EdgeReason.UNAUTHORIZED,
    KeyProblem.NOT_YET: EdgeReason.UNAUTHORIZED,
    KeyProblem.OTHER_PLANE: EdgeReason.WRONG_PLANE,
}


class Keys:
    """The accepted keys of one plane. wall: seconds since the epoch, for keys that begin and expire."""

    def __init__(self, ring: Keyring, wall: Callable[[], float], plane: Plane = Plane.DATA) -> None:
        self.ring = ring
        self._wall = wall
        self._plane = plane

    def identify(self, headers: Sequence[Header]) -> Grant | EdgeReason:
        """The grant of the key that the request carries, or why it has none."""
        found = self.ring.find(presented_key(headers), self._plane, self._wall())
        return found if isinstance(found, Grant) else REASONS[found]


def presented_key(headers: Sequence[Header]) -> bytes:
    """The key as OpenAI's or as Anthropic's SDK sends it; b"" when there is none."""
    given = b""
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].strip()
        if name == b"x-api-key":
            given = value
    return given


def fixed_grants(keys: Iterable[str], name: str, *planes: Plane) -> list[Grant]:
    """Keys of the configuration: without limits of their own, for every model. `name` stands in logs, numbered."""
    return [
        Grant(f"{name}-{number}", DEFAULT_TENANT, sha256(key.encode()).digest(), planes=planes)
        for number, key in enumerate(keys, 1)
    ]
