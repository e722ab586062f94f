"""Paged KV memory with a prefix cache: counts blocks, shares full ones by hash, evicts the least recently used.

A block is in exactly one of four places, and the four always sum to `num_blocks`:
  blank      free and empty
  idle       free but still holding a hash: can be hit, and is evicted, oldest first, when blank blocks run out
  shared     in use under a hash, with the number of requests that hold it
  private    in use without a hash: a block not yet full, or a second copy of a hash that is already there
Blocks have no addresses, since nothing about timing or hits depends on where a block lies.
"""

from collections import OrderedDict
from collections.abc import Sequence

from app.sim.engine.hashing import BlockHash


class PrefixCache:
    """The blocks of one engine."""

    def __init__(self, num_blocks: int, *, enabled: bool = True) -> None:
        self.num_blocks = num_blocks
        self.enabled = enabled
        self.blank = num_blocks
        self.private = 0
        self.evictions = 0
        self._shared: dict[BlockHash, int] = {}
        self._idle: OrderedDict[BlockHash, None] = OrderedDict()

    @property
    def free(self) -> int:
        """Blocks that can be taken now, idle ones included."""
        return self.blank + len(self._idle)

    @property
    def used(self) -> int:
        return self.num_blocks - self.free

    @property
    def cached(self) -> int:
        """Blocks that hold a hash, in use or idle."""
        return len(self._shared) + len(self._idle)

    def references(self, block: BlockHash) -> int | None:
        """Requests that hold `block`; 0 when idle, None when it is not cached."""
        if block in self._shared:
            return self._shared[block]
        return 0 if block in self._idle else None

    def match(self, hashes: Sequence[BlockHash], limit: int) -> tuple[int, int]:
        """Leading blocks of `hashes[:limit]` that are cached, and how many of those are idle (taking them uses up
        free blocks). Changes nothing."""
        if not self.enabled:
            return 0, 0
        shared, idle = self._shared, self._idle
        matched = matched_idle = 0
        for block in hashes[:limit] if limit < len(hashes) else hashes:
            if block in shared:
                matched += 1
            elif block in idle:
                matched += 1
                matched_idle += 1
            else:
                break
        return matched, matched_idle

    def hold(self, hashes: Sequence[BlockHash]) -> None:
        """Take a reference on each of `hashes`, which must be cached (what `match` counted)."""
        shared, idle = self._shared, self._idle
        for block in hashes:
            if block in shared:
                shared[block] += 1
            else:
                del idle[block]
                shared[block] = 1

    def take(self, count: int) -> None:
        """Turn `count` free blocks into private ones; the caller has checked `free`."""
        short = count - self.blank
        if short > 0:
            for _ in range(short):
                self._idle.popitem(last=False)
            self.evictions += short
            self.blank = 0
        else:
            self.blank -= count
        self.private += count

    def seal(self, block: BlockHash) -> bool:
        """Publish one private block under its hash. False: that hash is cached already, so the block stays private
        (a second copy, as vLLM keeps one too)."""
        if not self.enabled or block in self._shared or block in self._idle:
            return False
        self._shared[block] = 1
        self.private -= 1
        return True

    def release(self, held: Sequence[BlockHash], private: int) -> None:
        """Give back a request's blocks. The end of a chain becomes evictable first, since it is worthless without
        its beginning."""
        shared, idle = self._shared, self._idle
        for block in reversed(held):
            count = shared[block]
            if count > 1:
                shared[block] = count - 1
            else:
                del shared[block]
                idle[block] = None
        self.private -= private
        self.blank += private

    def clear(self) -> None:
        """Forget every idle block; blocks in use keep their hash until they are released."""
        self.blank += len(self._idle)
        self._idle.clear()
