"""Keyed names, so that equal keys of two tenants never meet: neither in routing nor in an engine's prefix cache.

Made with a secret that replicas share, since without it anybody could compute another tenant's names. During rotation
two secrets are active: the first makes, both are recognised.
"""

from collections.abc import Sequence
from hashlib import blake2b

KEY_BYTES = 16
SALT_BYTES = 24
"""192 bits: vLLM's own advice for a salt is 256 bits in base64 at most, and never guessable."""

SECRET_MAX = 64
"""What blake2b takes as a key; longer secrets are hashed first."""


class Namespace:
    """Made from one or two secrets, each of at least 16 bytes."""

    __slots__ = ("_secrets", "_tenants")

    def __init__(self, secrets: Sequence[bytes]) -> None:
        if not secrets or min(map(len, secrets)) < 16:
            raise ValueError("a tenant hash key has at least 16 bytes")
        self._secrets = [secret if len(secret) <= SECRET_MAX else blake2b(secret).digest() for secret in secrets]
        # Bounded by the operator's tenants. A secret of its own for each keeps (tenant, key) unambiguous.
        self._tenants: dict[str, list[bytes]] = {}

    def routing_key(self, tenant: str, key: bytes) -> bytes:
        """The name under which this tenant's `key` is routed."""
        return blake2b(key, digest_size=KEY_BYTES, key=self._of(tenant)[0], person=b"warmset key").digest()

    def recognises(self, tenant: str, key: bytes, name: bytes) -> bool:
        """Whether `name` was made by routing_key of these two, under any active secret."""
        made = [
            blake2b(key, digest_size=KEY_BYTES, key=own, person=b"warmset key").digest() for own in self._of(tenant)
        ]
        return name in made

    def cache_salt(self, tenant: str) -> str:
        """The tenant's `cache_salt`: the same for all its requests, and no other tenant's."""
        return blake2b(digest_size=SALT_BYTES, key=self._of(tenant)[0], person=b"warmset salt").hexdigest()

    def _of(self, tenant: str) -> list[bytes]:
        own = self._tenants.get(tenant)
        if own is None:
            name = tenant.encode("utf-8", "surrogatepass")
            own = [blake2b(name, key=secret, person=b"warmset tenant").digest() for secret in self._secrets]
            self._tenants[tenant] = own
        return own
