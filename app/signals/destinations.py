"""The one place where the name of a worker is looked up, and what it stands for is checked.

Everything that connects to a worker is given an address from here. All addresses of a name are checked, not only the
one that is used: a name that also stands for a place where no worker may be is not trusted with a request.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence

from app.core.fleet.address import destination_of, literal_address
from app.core.fleet.allow import DestinationRules
from app.core.fleet.errors import DestinationRefused, NameUnknown
from app.signals.control import StartTask

LOOKUP_S = 2.0
"""Wait for the answer to a look-up. A worker that is already known keeps its address when there is none."""

MAX_ADDRESSES = 256
"""Of one name."""

Lookup = Callable[[str], Awaitable[Sequence[str]]]
"""The addresses of a name, best first. Raises OSError or UnicodeError."""


async def look_up(name: str) -> Sequence[str]:
    """As the system does it, in a thread."""
    found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


class Destinations:
    """Where workers are, by the operator's rules. start: runs a look-up in a task that somebody holds."""

    def __init__(self, rules: DestinationRules, *, start: StartTask, lookup: Lookup = look_up) -> None:
        self._rules = rules
        self._start = start
        self._lookup = lookup
        self._under_way: dict[str, asyncio.Task[tuple[str, ...] | str]] = {}

    def refusal(self, url: str) -> str | None:
        """Why no worker may be there, as far as that can be said without looking its name up; None when one may."""
        return self._rules.refusal(url)

    async def addresses(self, url: str) -> tuple[str, ...]:
        """The addresses of the URL's host, best first, all of them allowed. Raises DestinationRefused, NameUnknown."""
        refusal = self._rules.refusal(url)
        if refusal is not None:
            raise DestinationRefused(refusal)
        host = destination_of(url).host
        literal = literal_address(host)
        if literal is not None:
            return (literal,)
        addresses = await self._look_up(host)
        refusal = self._rules.refusal(url, addresses)
        if refusal is not None:
            raise DestinationRefused(refusal)
        return addresses

    async def _look_up(self, name: str) -> tuple[str, ...]:
        """One look-up of a name at a time: one that hangs holds a thread, and cannot be called back."""
        task = self._under_way.get(name)
        if task is None:
            task = self._under_way[name] = self._start(self._ask(name), f"look up {name}")
            task.add_done_callback(lambda done: self._under_way.pop(name, None))
        await asyncio.wait({task}, timeout=LOOKUP_S)
        if not task.done() or task.cancelled():
            raise NameUnknown(f"the look-up of {name} was not answered in time")
        found = task.result()
        if isinstance(found, str):
            raise NameUnknown(found)
        return found

    async def _ask(self, name: str) -> tuple[str, ...] | str:
        """The outcome as a value: nobody may be left to raise it to."""
        try:
            found = tuple(dict.fromkeys(await self._lookup(name)))
        except (OSError, UnicodeError) as error:
            why = error.strerror if isinstance(error, OSError) else None
            return f"{name} cannot be looked up: {why or type(error).__name__}"
        if not 0 < len(found) <= MAX_ADDRESSES:
            return f"{name} has {len(found)} addresses"
        return found
