"""How long a worker is waited for, in minutes of a clock that the test turns; and connections that it let go."""

import asyncio
import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import pytest
import uvicorn

from app.api.listener import KEEP_ALIVE_S
from app.config.schema import Config
from app.core.fleet.exchange import Call, StreamBroken, UpstreamError
from app.core.fleet.reasons import Failure
from app.core.fleet.worker import Worker
from app.upstream.client import IDLE_S, HttpUpstream
from app.upstream.connection import Connection, ExchangeLimits
from tests.fakes.raw_worker import OK, Connected, RawWorker

MINUTE = 60.0


class Timer:
    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self._at = at
        self.call = call
        self.is_cancelled = False

    def when(self) -> float:
        return self._at

    def cancel(self) -> None:
        self.is_cancelled = True


class Clock:
    """What a connection asks of its loop: the time, and to be called."""

    def __init__(self) -> None:
        self._now = 0.0
        self._timers: list[Timer] = []

    def time(self) -> float:
        return self._now

    def call_at(self, at: float, call: Callable[[], None]) -> Timer:
        self._timers.append(Timer(at, call))
        return self._timers[-1]

    def turn(self, seconds: float) -> None:
        """Let time pass, and call whoever is due on the way."""
        end = self._now + seconds
        while True:
            due = [timer for timer in self._timers if not timer.is_cancelled and timer.when() <= end]
            if not due:
                break
            first = min(due, key=Timer.when)
            self._timers.remove(first)
            self._now = max(self._now, first.when())
            first.call()
        self._now = end


class Wire(asyncio.Transport):
    """Takes what is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.is_closed = False

    def write(self, data: Any) -> None: ...

    def is_closing(self) -> bool:
        return self.is_closed

    def abort(self) -> None:
        self.is_closed = True

    def get_write_buffer_size(self) -> int:
        return 0


class Nobody:
    def became_idle(self, connection: Connection) -> None: ...

    def lost(self, connection: Connection) -> None: ...


def default_limits(**changes: float) -> ExchangeLimits:
    fields = Config.model_fields
    limits = {
        "total": fields["request_timeout_secs"].default,
        "first_byte": fields["first_byte_timeout_secs"].default,
        "idle": fields["stream_idle_timeout_secs"].default,
    }
    return ExchangeLimits(**(limits | changes))


class Begun:
    """An exchange under way on a connection to nobody. `say` is the worker."""

    def __init__(self, limits: ExchangeLimits) -> None:
        self.clock, self.wire = Clock(), Wire()
        self._connection = Connection(cast(asyncio.AbstractEventLoop, self.clock), Nobody())
        self._connection.connection_made(self.wire)
        self.answer = asyncio.ensure_future(self._connection.exchange(b"POST / HTTP/1.1\r\n\r\n", b"{}", limits))

    def say(self, data: bytes) -> None:
        self._connection.data_received(data)


async def begin(limits: ExchangeLimits) -> Begun:
    begun = Begun(limits)
    await asyncio.sleep(0)
    return begun


HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


async def test_a_worker_may_think_for_ten_minutes_by_default() -> None:
    begun = await begin(default_limits())
    begun.clock.turn(10 * MINUTE - 1)
    begun.say(HEAD + b"1\r\na\r\n")
    answer = await begun.answer
    assert await answer.read() == b"a"
    begun.clock.turn(10 * MINUTE - 1)
    begun.say(b"1\r\nb\r\n0\r\n\r\n")
    assert await answer.read() == b"b"
    assert answer.is_complete


async def test_each_limit_is_a_limit_of_its_own() -> None:
    patient = await begin(default_limits(first_byte=15 * MINUTE, idle=30.0))
    patient.clock.turn(12 * MINUTE)
    patient.say(HEAD)
    answer = await patient.answer
    patient.clock.turn(31.0)
    with pytest.raises(StreamBroken, match="nothing came for 30 s"):
        await answer.read()
    assert patient.wire.is_closed, "so that the worker stops"

    silent = await begin(default_limits(first_byte=30.0))
    silent.clock.turn(31.0)
    with pytest.raises(UpstreamError, match="no answer began within 30 s") as caught:
        await silent.answer
    assert caught.value.failure is Failure.TIMEOUT

    busy = await begin(default_limits(total=20 * MINUTE))
    busy.say(HEAD)
    answer = await busy.answer
    for _ in range(19):
        busy.clock.turn(MINUTE)
        busy.say(b"1\r\na\r\n")
        assert await answer.read() == b"a"
    busy.clock.turn(MINUTE)
    with pytest.raises(StreamBroken, match="no complete answer within 1200 s"):
        await answer.read()


def test_idle_connections_are_let_go_by_who_would_use_them_next() -> None:
    workers_s = inspect.signature(uvicorn.Config).parameters["timeout_keep_alive"].default
    assert workers_s > IDLE_S, "vLLM's default is uvicorn's"
    assert KEEP_ALIVE_S > 60, "a usual idle limit of load balancers in front of us"


async def test_a_worker_that_lets_go_as_it_is_asked_costs_nobody_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pause is about the worker's idle limit, so the request meets the close at any moment."""
    monkeypatch.setattr("app.upstream.client.IDLE_S", 1000.0)  # else ours goes first, and nothing is met

    async def lets_go(connection: Connected) -> None:
        await connection.read_request()
        await connection.send(OK)
        with suppress(TimeoutError):
            async with asyncio.timeout(0.005):
                while True:
                    await connection.read_request()
                    await connection.send(OK)

    client = HttpUpstream(connect_timeout_s=5, limits=ExchangeLimits(20, 20, 20))
    async with RawWorker(lets_go) as worker:
        for place in range(100):
            call = Call(b"POST", b"/", (), b"%d" % place)
            answer = await client.send(Worker("w", worker.url, "1"), call)
            assert (answer.status, await answer.read()) == (200, b"{}")
            await asyncio.sleep(0.004 + place % 5 * 0.0005)
        assert [body for _, body in worker.requests] == [b"%d" % place for place in range(100)], "each of them once"
        assert len(worker.connections) > 1
    client.close()
