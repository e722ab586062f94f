"""Runs a gateway process under signals; what `serve` and `up` share."""

import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable

import uvloop

from app.config.schema import Config
from app.store.embedded import EmbeddedServerError
from app.telemetry.logs import set_up_logging
from app.wiring.control import ControlProcess

log = logging.getLogger("warmset")

WhenUp = Callable[[ControlProcess], Awaitable[None]]


def run_gateway(config: Config, log_level: str, *, is_readable: bool = False, when_up: WhenUp | None = None) -> int:
    """Serve until a signal; the exit status. `when_up` runs once the listeners are there."""
    set_up_logging(log_level, readable=is_readable)
    try:
        return uvloop.run(_run(ControlProcess(config, log_level, is_readable=is_readable), when_up))
    except KeyboardInterrupt:
        return 130  # before our handlers were in place


async def _run(gateway: ControlProcess, when_up: WhenUp | None) -> int:
    told = _signals()
    try:
        await gateway.start()
    except (OSError, EmbeddedServerError) as error:
        print(f"warmset: {error}", file=sys.stderr)
        return 1
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, gateway.tenants.load)
    log.info("listening", extra=gateway.addresses)
    if when_up is not None:
        announcing = asyncio.ensure_future(when_up(gateway))  # noqa: TID251 - awaited or cancelled below
        await asyncio.wait([announcing, told[0]], return_when=asyncio.FIRST_COMPLETED)
        announcing.cancel()
    await told[0]
    log.info("shutting down", extra={"open_requests": gateway.open_requests})
    await gateway.stop(cut_now=told[1])
    return 0


def _signals() -> tuple["asyncio.Future[None]", "asyncio.Future[None]"]:
    """Done at the first, and at the second, SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    first: asyncio.Future[None] = loop.create_future()
    second: asyncio.Future[None] = loop.create_future()

    def told() -> None:
        future = first if not first.done() else second
        if not future.done():
            future.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told)
    return first, second
