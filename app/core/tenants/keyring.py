"""Which grant a presented key has.

Invariants
    1. Keys are known as digests only, and a presented key is hashed before anything else is done with it.
    2. Time tells nothing of keys. The look-up is by the SHA-256 of what was presented, in a table whose own hash is
       keyed with a secret of the process, so no guess can be steered towards a digest; what it finds is then compared
       in constant time. It takes as long for one key as for ten thousand.
    3. A ring that was told to expect keys from a file never opens for everybody, however empty the file is.
"""

import hmac
from collections.abc import Iterable
from enum import Enum
from fnmatch import translate
from functools import lru_cache
from hashlib import sha256
from re import Pattern
from re import compile as compile_pattern

from app.core.fleet.tenant import DEFAULT_TENANT, Grant, Plane

EVERYBODY = Grant("", DEFAULT_TENANT, b"", planes=tuple(Plane))
"""The grant of a request where no key is asked for."""


class KeyProblem(Enum):
    """Why a key opens nothing."""

    UNKNOWN = "unknown"
    NOT_YET = "not yet valid"
    EXPIRED = "expired"
    OTHER_PLANE = "other plane"


class Keyring:
    """fixed: keys of the configuration. is_closed: there is a keys file, so a key is needed in any case."""

    def __init__(self, fixed: Iterable[Grant] = (), *, is_closed: bool = False) -> None:
        self._fixed = list(fixed)
        self._is_open = not self._fixed and not is_closed
        self._grants: dict[bytes, Grant] = {}
        self.replace(())

    def replace(self, grants: Iterable[Grant]) -> None:
        """From now on these, beside the fixed ones. A key that two of them have is the fixed one's."""
        self._grants = {grant.digest: grant for grant in (*grants, *self._fixed)}

    def find(self, presented: bytes, plane: Plane, wall: float) -> Grant | KeyProblem:
        """The grant of a key that was presented, b"" when there was none. wall: seconds since the epoch."""
        if self._is_open:
            return EVERYBODY
        digest = sha256(presented).digest()
        grant = self._grants.get(digest)
        if grant is None or not hmac.compare_digest(grant.digest, digest):
            return KeyProblem.UNKNOWN
        if grant.expires is not None and wall >= grant.expires:
            return KeyProblem.EXPIRED
        if grant.not_before is not None and wall < grant.not_before:
            return KeyProblem.NOT_YET
        return grant if plane in grant.planes else KeyProblem.OTHER_PLANE

    def has_plane(self, plane: Plane) -> bool:
        """Whether any key opens it."""
        return any(plane in grant.planes for grant in self._grants.values())


def may_use(grant: Grant, *names: str) -> bool:
    """Whether the grant covers a model that has these names: the one that was asked for, and its own."""
    for pattern in grant.models:
        if pattern == "*":
            return True
        matches = _pattern(pattern).match
        if any(matches(name) for name in names):
            return True
    return False


@lru_cache(maxsize=4096)
def _pattern(glob: str) -> Pattern[str]:
    """Case counts, as it does in model names."""
    return compile_pattern(translate(glob))
