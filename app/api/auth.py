"""Who may send requests: bearer keys, known here as digests only."""

import hmac
from collections.abc import Iterable, Sequence
from hashlib import sha256

from app.core.fleet.exchange import Header


class Keys:
    """The accepted keys. Without any, everybody is let in (the configuration allows that on loopback only)."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._digests = [sha256(key.encode()).digest() for key in keys]

    def admit(self, headers: Sequence[Header]) -> bool:
        """True when the request carries one of the keys, as OpenAI's or as Anthropic's SDK sends it.

        Compares digests with each key in constant time, so that timing tells neither a key nor how many there are.
        """
        if not self._digests:
            return True
        given = b""
        for name, value in headers:
            if name == b"authorization" and value[:7].lower() == b"bearer ":
                given = value[7:].strip()
                break
            if name == b"x-api-key":
                given = value
        digest = sha256(given).digest()
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return any(matches)
