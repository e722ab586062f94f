"""Messages between two processes."""

import asyncio
import socket
from typing import Any

from app.runtime.channel import Channel
from tests.patience import soon


async def pair() -> tuple[Channel, Channel, "asyncio.Queue[Any]", asyncio.Event]:
    heard: asyncio.Queue[Any] = asyncio.Queue()
    closed = asyncio.Event()
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
    here = Channel(lambda message: None, lambda: None)
    there = Channel(heard.put_nowait, closed.set)
    await here.open(ends[0])
    await there.open(ends[1])
    return here, there, heard, closed


async def test_messages_arrive_whole_and_in_order() -> None:
    here, there, heard, _ = await pair()
    sent: list[dict[str, Any]] = [{"n": number, "text": "x" * (number * 1000)} for number in range(300)]
    for message in sent:
        here.send(message)
    assert [await soon(heard.get()) for _ in sent] == sent
    here.close()
    there.close()
    await asyncio.sleep(0.01)


async def test_the_end_of_the_other_side_is_told_once_and_later_messages_go_nowhere() -> None:
    here, there, _, closed = await pair()
    here.send({"n": 1})
    await here.flushed()
    here.close()
    await soon(closed.wait())
    await asyncio.sleep(0.01)
    here.send({"n": 2})
    there.send({"n": 3})


async def test_a_peer_that_does_not_read_is_dropped() -> None:
    ends = socket.socketpair()
    ends[0].setblocking(False)
    closed = asyncio.Event()
    here = Channel(lambda message: None, closed.set)
    await here.open(ends[0])
    for _ in range(80):
        here.send({"text": "x" * 1024 * 1024})
    await soon(closed.wait())
    ends[1].close()
