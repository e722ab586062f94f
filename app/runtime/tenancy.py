"""Tenants, as the control process sees them: keys taken from the file, limits divided among processes.

A keys file that cannot be used changes nothing: the keys that were valid stay so, since the alternative is to lock
everybody out over a misplaced comma. Nor does a file that is just being written: it is read once it has stayed the same
for a turn.
"""

import logging
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from app.core.fleet.errors import StoreUnavailable
from app.core.fleet.tenant import KeySet, Limits
from app.core.tenants.demand import HELD, HELD_BYTES, MEMORY_S, REQUESTS, TOKENS, Demand
from app.core.tenants.division import Division
from app.core.tenants.keyring import Keyring
from app.core.tenants.records import keys_to_record, limits_to_record
from app.core.tenants.shares import Share, limited_scopes
from app.runtime.channel import Message
from app.runtime.ports import UsageStore

log = logging.getLogger("warmset.tenants")

POLL_S = 1.0
"""How often the keys file is looked at."""

SYNC_S = 1.0
"""How often limits are divided anew."""

SHOWN_SCOPES = 1000
"""Scopes that /status shows."""


class KeysFile(NamedTuple):
    """stamp: changes with the file, None while there is none. read: its keys, or what is wrong with it."""

    path: str
    stamp: Callable[[], Hashable]
    read: Callable[[], KeySet | list[str]]


class Listeners(Protocol):
    """The serving processes (`app.runtime.processes.Processes`)."""

    def tell(self, message: Message) -> None: ...

    def tell_one(self, number: int, message: Message) -> None: ...


class TenantControl:
    """number: of serving processes. ring: of the admin plane, kept up to date. clock: monotonic seconds."""

    def __init__(
        self,
        processes: Listeners,
        number: int,
        store: UsageStore,
        division: Division,
        ring: Keyring,
        file: KeysFile | None,
        clock: Callable[[], float],
    ) -> None:
        self._processes = processes
        self._store = store
        self._division = division
        self._ring = ring
        self._file = file
        self._clock = clock
        self._demand = [Demand() for _ in range(number)]
        self._keys = KeySet()
        self._read_stamp: Hashable = None
        self._seen_stamp: Hashable = None
        self._loaded_at: float | None = None
        self._problems: list[str] = []
        self._shares: dict[str, list[Share]] = {}

    # Keys

    def load(self) -> None:
        """Read the file now, and tell everybody of what changed."""
        if self._file is None:
            return
        # Before the reading: what is written meanwhile has another stamp, and is read at the next turn.
        self._read_stamp = self._seen_stamp = self._file.stamp()
        read = self._file.read()
        if isinstance(read, list):
            self._problems = read
            log.error("keys file not taken over", extra={"file": self._file.path, "problems": read})
            return
        self._problems = []
        self._loaded_at = self._clock()
        if read != self._keys:
            self._keys = read
            self._ring.replace(read.grants)
            self._processes.tell(self._keys_message())
            log.info("keys taken over", extra={"file": self._file.path, "keys": len(read.grants)})
            self._divide(self._clock())

    async def watch(self) -> None:
        """One look at the file."""
        if self._file is not None:
            seen, self._seen_stamp = self._seen_stamp, self._file.stamp()
            if self._seen_stamp == seen and seen != self._read_stamp:
                self.load()

    def greeting(self) -> list[Message]:
        """What a new process must know. Its shares are even ones until the next turn, the smallest of which is its."""
        parts = self._division.parts
        return [{"kind": "shares", "scopes": {}, "parts": parts, "place": parts - 1}, self._keys_message()]

    # Shares

    def reported(self, number: int, usage: Mapping[str, Sequence[float]]) -> None:
        """What a process was asked for since its last report."""
        self._demand[number].report(usage, self._clock())

    async def sync(self) -> None:
        """One turn: tell the others of our usage, learn of theirs, divide."""
        limited = limited_scopes(self._keys)
        rows = [{scope: row for scope, row in demand.rows.items() if scope in limited} for demand in self._demand]
        try:
            usages = await self._store.exchange_usage(self._division.usage(rows))
        except StoreUnavailable:
            pass  # the store says so itself; the division falls back to what it last knew
        else:
            self._division.heard(usages, self._clock())
        self._divide(self._clock())

    def _divide(self, now: float) -> None:
        division = self._division
        rows = [demand.rows for demand in self._demand]
        self._shares = division.shares(limited_scopes(self._keys), rows, now)
        for number in range(len(self._demand)):
            message: Message = {
                "kind": "shares",
                "scopes": {scope: shares[number] for scope, shares in self._shares.items()},
                "parts": division.parts,
                "place": division.first_place + number,
            }
            self._processes.tell_one(number, message)

    def _keys_message(self) -> Message:
        return {"kind": "keys", "record": keys_to_record(self._keys)}

    # Status

    def describe(self) -> dict[str, Any]:
        """For /status: the keys file, and each limited scope with its limits, what it uses here, and our shares."""
        now = self._clock()
        file = self._file
        return {
            "keys": len(self._keys.grants),
            "keys_file": file.path if file is not None else None,
            "keys_file_age_s": None if self._loaded_at is None else round(now - self._loaded_at, 3),
            "keys_file_problems": self._problems,
            "gateways": self._division.gateways,
            "processes": self._division.parts,
            "shares_by": "last known number of processes" if self._division.is_local(now) else "demand",
            "limited": {
                scope: {
                    "limits": limits_to_record(limits),
                    "under_way": sum(int(row[HELD]) for row in self._rows(scope)),
                    "in_flight_bytes": sum(int(row[HELD_BYTES]) for row in self._rows(scope)),
                    "asked_per_minute": _per_minute(row[REQUESTS] for row in self._rows(scope)),
                    "tokens_per_minute": _per_minute(row[TOKENS] for row in self._rows(scope)),
                    "shares": [_named(share) for share in self._shares.get(scope, [])],
                }
                for scope, limits in list(limited_scopes(self._keys).items())[:SHOWN_SCOPES]
            },
        }

    def _rows(self, scope: str) -> list[Sequence[float]]:
        return [demand.rows[scope] for demand in self._demand if scope in demand.rows]


def _per_minute(recent: Iterable[float]) -> float:
    """Of the last few seconds, refused requests included."""
    return round(sum(recent) / MEMORY_S * 60, 1)


def _named(share: Share) -> dict[str, float | None]:
    return limits_to_record(Limits(*share))
