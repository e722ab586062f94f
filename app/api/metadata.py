"""The header `metadata` of answers in `bytes`: it says what is where in the octets, and grows with each input.

vLLM 0.32 writes about 114 bytes for each: those of 70 inputs are more than aiohttp reads, those of 570 more than
urllib does. The gateway passes what a worker writes; it tells the operator once, and where it is asked to, the client.
"""

import logging
from collections.abc import Sequence

from app.api.batches import METADATA
from app.core.fleet.exchange import Header

log = logging.getLogger("warmset.api")

READ_BY = ((64 * 1024, "http.client and urllib"), (8 * 1024, "aiohttp"))
"""Bytes of a header that a client reads when nobody tells it to read more."""


def metadata_of(headers: Sequence[Header]) -> bytes:
    """The header's value, b"" without one."""
    return next((value for name, value in headers if name == METADATA), b"")


class LargeMetadata:
    """Watches for headers that are too large. most: bytes that may pass, 0 for any number."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._told: list[int] = []

    def problem(self, metadata: bytes, worker_id: str) -> str | None:
        """Why an answer must not pass, or None. The first of a size that common clients do not read is logged."""
        size = len(metadata)
        for limit, client in READ_BY:
            if size > limit and limit not in self._told:
                self._told.append(limit)
                log.warning(
                    "metadata header larger than some clients read",
                    extra={"worker": worker_id, "bytes": size, "limit": limit, "clients": client},
                )
                break
        if self._most and size > self._most:
            return f"it has {size} bytes of at most {self._most}"
        return None
