"""How tests wait. A machine may be slow, so no test says how long a thing takes on it.

What must happen is waited for, as a condition, with a deadline that no working machine meets. What must not be
exceeded is asserted on a clock of the test's own, or on what was measured. A lower bound of time may stay as it is:
slowness only adds. tests/architecture/test_patience.py keeps watch.
"""

import asyncio
import inspect
import random
import socket
import time
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, TypeVar

import httpx

Found = TypeVar("Found")

PATIENCE_S = 60.0
"""For one thing that takes moments on a machine of its own."""

FOR_EVER_S = 100_000.0
"""A limit that never ends anything in a test. Where the product waits for this long, PATIENCE_S ends first."""

POLL_S = 0.01

LASTING_PORTS = range(20_000, 30_000)
"""Below what kernels hand out by themselves (Linux: from 32768 on), so that nobody gets a port while it is free."""


def until(found: Callable[[], Found], *, limit_s: float = PATIENCE_S) -> Found:
    """What `found` returns, once that is true."""
    deadline = time.monotonic() + limit_s
    while True:
        value = found()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {limit_s:g} s: {_words(found)}")
        time.sleep(POLL_S)


async def eventually(found: Callable[[], Any], *, limit_s: float = PATIENCE_S) -> Any:
    """What `found` returns, awaited when it can be, once that is true."""
    deadline = time.monotonic() + limit_s
    while True:
        value = found()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {limit_s:g} s: {_words(found)}")
        await asyncio.sleep(POLL_S)


async def soon(work: Awaitable[Found]) -> Found:
    """What comes of it; TimeoutError when it does not end."""
    return await asyncio.wait_for(work, PATIENCE_S)


def patience() -> asyncio.Timeout:
    """As `soon`, for a block: `async with patience():`."""
    return asyncio.timeout(PATIENCE_S)


SCALES = (1, 2, 4, 8, 16)


async def undisturbed(attempt: Callable[[float], Awaitable[Found]], pause_s: float) -> Found:
    """The outcome of an attempt in which the machine let this loop run.

    For what is promised of somebody who is slow, but quicker than a limit: on a machine that stood still for longer
    than `pause_s` such a test says nothing. Then it is tried again, in slower motion: the attempt is given a scale, by
    which it multiplies all its times. A failure without a disturbance counts at once, and so does that of the last try.
    """
    for scale in SCALES:
        lag = _Lag()
        watching = asyncio.ensure_future(lag.watch())
        try:
            return await attempt(scale)
        except Exception:
            if lag.longest_s < pause_s * scale or scale == SCALES[-1]:
                raise
        finally:
            watching.cancel()
    raise AssertionError("unreachable")


class _Lag:
    """How long the loop stood still."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def watch(self) -> None:
        while True:
            begun = time.monotonic()
            await asyncio.sleep(0.001)
            self.longest_s = max(self.longest_s, time.monotonic() - begun - 0.001)


def lasting_ports(count: int) -> list[int]:
    """Free ports for who takes them later, or leaves them and comes back: nobody is given one of them meanwhile."""
    found: list[int] = []
    for port in random.sample(LASTING_PORTS, len(LASTING_PORTS)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no ports are free")


def lasting_port() -> int:
    (port,) = lasting_ports(1)
    return port


def make_httpx_patient() -> None:
    """httpx gives up after 5 s, unless each call says otherwise: a limit that nobody sees in a test.

    And it reads all certificates of the machine for every client, a tenth of a second each time, to speak plain HTTP.
    """
    for part in ("connect", "read", "write", "pool"):
        setattr(httpx._config.DEFAULT_TIMEOUT_CONFIG, part, PATIENCE_S)
    default = httpx._transports.default
    default.create_ssl_context = lru_cache(maxsize=8)(default.create_ssl_context)  # type: ignore[attr-defined]


def _words(found: Callable[..., object]) -> str:
    try:
        return inspect.getsource(found).strip()
    except (OSError, TypeError):
        return repr(found)
