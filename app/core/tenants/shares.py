"""A limit and everybody's recent demand -> everybody's share. Pure, and the same in every gateway that sees the same.

Shares add up to at most the limit. Whoever asked for nothing still gets a floor: a process that was just started, or a
connection that just moved, must not wait for the next turn.
"""

from collections.abc import Sequence

from app.core.fleet.tenant import UNLIMITED, KeySet, Limits
from app.core.tenants.demand import HELD, HELD_BYTES, REQUESTS, TOKENS, WANTED, WANTED_BYTES

Share = tuple[float | None, float | None, int | None, int | None]
"""Of a scope's limits: requests and tokens per minute, places, bytes. None where there is no limit."""

FLOOR = 0.1
"""Part of a limit that is divided evenly, whatever the demand."""


def scope_of_tenant(tenant: str) -> str:
    return f"tenant {tenant}"


def scope_of_key(name: str) -> str:
    return f"key {name}"


def limited_scopes(keys: KeySet) -> dict[str, Limits]:
    """Everything that has a limit."""
    scopes = {scope_of_tenant(tenant): limits for tenant, limits in keys.tenants.items()}
    scopes |= {scope_of_key(grant.name): grant.limits for grant in keys.grants}
    return {scope: limits for scope, limits in scopes.items() if limits != UNLIMITED}


def whole_of(limits: Limits) -> Share:
    """The share of one who is alone."""
    return limits.requests_per_minute, limits.tokens_per_minute, limits.concurrency, limits.in_flight_bytes


def even_share_of(limits: Limits, parts: int, place: int) -> Share:
    """The share of the place-th of so many, counted from 0, when nothing is known of demand."""
    requests, tokens, places, size = whole_of(limits)
    return (
        None if requests is None else requests / parts,
        None if tokens is None else tokens / parts,
        None if places is None else _even(places, parts, place),
        None if size is None else _even(size, parts, place),
    )


def shares_of(limits: Limits, rows: Sequence[Sequence[float]]) -> list[Share]:
    """Everybody's share of one scope, by the rows of demand of each."""

    def rates(limit: float | None, column: int) -> Sequence[float | None]:
        return [None] * len(rows) if limit is None else rate_shares(limit, [row[column] for row in rows])

    def wholes(limit: int | None, held: int, wanted: int) -> Sequence[int | None]:
        if limit is None:
            return [None] * len(rows)
        return whole_shares(limit, [int(row[held]) for row in rows], [int(row[wanted]) for row in rows])

    return list(
        zip(
            rates(limits.requests_per_minute, REQUESTS),
            rates(limits.tokens_per_minute, TOKENS),
            wholes(limits.concurrency, HELD, WANTED),
            wholes(limits.in_flight_bytes, HELD_BYTES, WANTED_BYTES),
            strict=True,
        )
    )


def rate_shares(limit: float, demand: Sequence[float]) -> list[float]:
    """Shares of a rate, by demand (any unit, the same for all)."""
    total = sum(demand)
    if total <= 0:
        return [limit / len(demand)] * len(demand)
    floor = limit * FLOOR / len(demand)
    rest = limit * (1 - FLOOR)
    # The proportion first: an amount near zero is no number to divide a limit by.
    return [floor + rest * (wanted / total) for wanted in demand]


def whole_shares(limit: int, held: Sequence[int], wanted: Sequence[int]) -> list[int]:
    """Shares of a number of places. held: places taken now. wanted: as many as would be taken if all were let in.

    Each keeps what it holds as long as that fits, because nothing can be taken back; the free places go by what is
    wanted beyond it.
    """
    taken = sum(held)
    if taken >= limit:
        return _divided(limit, list(map(float, held)))
    more = [float(max(0, want - have)) for want, have in zip(wanted, held, strict=True)]
    total = sum(more)
    floor = total * FLOOR / len(more) if total else 1.0
    free = _divided(limit - taken, [floor + (1 - FLOOR) * part for part in more])
    return [have + share for have, share in zip(held, free, strict=True)]


def _even(limit: int, parts: int, place: int) -> int:
    return limit // parts + (place < limit % parts)


def _divided(number: int, weights: Sequence[float]) -> list[int]:
    """`number` in whole parts by weight: each rounded down, what is left to the largest remainders, then in turn."""
    total = sum(weights)
    exact = [number * weight / total for weight in weights]
    parts = [int(part) for part in exact]
    by_remainder = sorted(range(len(parts)), key=lambda place: (parts[place] - exact[place], place))
    for place in by_remainder[: number - sum(parts)]:
        parts[place] += 1
    return parts
