"""Blocks: shared by hash, counted once each, evicted oldest first and ends before beginnings."""

from app.sim.engine import PrefixCache


def filled(cache: PrefixCache, *hashes: str) -> list[str]:
    """Hashes of a chain that one request has computed and still holds."""
    cache.take(len(hashes))
    return [block for block in hashes if cache.seal(block)]


def test_a_released_chain_is_still_there_to_be_hit() -> None:
    cache = PrefixCache(8)
    held = filled(cache, "a", "b")
    cache.release(held, 0)
    assert cache.free == 8
    assert cache.match(["a", "b", "c"], 9) == (2, 2)
    cache.hold(["a", "b"])
    assert (cache.free, cache.references("a")) == (6, 1)


def test_two_holders_share_a_block_until_both_let_go() -> None:
    cache = PrefixCache(8)
    held = filled(cache, "a")
    cache.hold(held)
    assert (cache.used, cache.references("a")) == (1, 2)
    cache.release(held, 0)
    assert (cache.used, cache.references("a")) == (1, 1)
    cache.release(held, 0)
    assert (cache.used, cache.references("a")) == (0, 0)


def test_matching_stops_at_the_first_gap_and_at_the_limit() -> None:
    cache = PrefixCache(8)
    filled(cache, "a", "c")
    assert cache.match(["a", "b", "c"], 9) == (1, 0)
    assert cache.match(["a"], 0) == (0, 0)


def test_blank_blocks_go_before_cached_ones_and_ends_before_beginnings() -> None:
    cache = PrefixCache(4)
    cache.release(filled(cache, "a", "b"), 0)
    cache.take(2)
    assert cache.evictions == 0
    cache.take(1)
    assert (cache.references("a"), cache.references("b")) == (0, None)
    cache.take(1)
    assert (cache.references("a"), cache.free) == (None, 0)


def test_the_least_recently_used_chain_goes_first() -> None:
    cache = PrefixCache(2)
    cache.release(filled(cache, "old"), 0)
    cache.release(filled(cache, "new"), 0)
    cache.hold(["old"])
    cache.release(["old"], 0)
    cache.take(1)
    assert (cache.references("old"), cache.references("new")) == (0, None)


def test_a_second_copy_stays_private() -> None:
    cache = PrefixCache(4)
    filled(cache, "a")
    cache.take(1)
    assert not cache.seal("a")
    assert (cache.private, cache.references("a"), cache.used) == (1, 1, 2)


def test_clearing_forgets_what_nobody_holds() -> None:
    cache = PrefixCache(4)
    cache.release(filled(cache, "a"), 0)
    filled(cache, "b")
    cache.clear()
    assert (cache.references("a"), cache.references("b"), cache.blank) == (None, 1, 3)


def test_a_disabled_cache_never_hits() -> None:
    cache = PrefixCache(4, enabled=False)
    assert filled(cache, "a") == []
    assert cache.match(["a"], 1) == (0, 0)
    assert cache.private == 1
