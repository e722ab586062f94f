"""A gateway that cannot keep up refuses the cheapest way, and not everybody."""

import json

import pytest

from app.core.overload.pressure import Level
from tests.api.conftest import Edge
from tests.api.raw import BODY, body_of, headers_of, post, status_of
from tests.fakes.raw_worker import RawWorker


@pytest.mark.parametrize(
    ("level", "served"),
    [
        (Level.CALM, {"low", "normal", "high", "critical"}),
        (Level.GUARDED, {"normal", "high", "critical"}),
        (Level.SHEDDING, {"critical"}),
    ],
)
async def test_who_is_served(edge: Edge, level: Level, served: set[str]) -> None:
    async with RawWorker() as worker:
        edge.add(worker)
        edge.proxy.pressure.level = level
        for priority in ("low", "normal", "high", "critical"):
            raw = await (await edge.talk(post(BODY, b"x-warmset-priority: " + priority.encode()))).rest()
            assert status_of(raw) == (200 if priority in served else 503), priority
            if priority not in served:
                error = json.loads(body_of(raw))["error"]
                assert (error["code"], headers_of(raw)[b"retry-after"]) == ("overloaded", b"1")
                assert headers_of(raw)[b"connection"] == b"close", "nothing more is read"
        await edge.at_rest()


async def test_a_refusal_reads_nothing_of_the_body(edge: Edge) -> None:
    edge.proxy.pressure.level = Level.SHEDDING
    talk = await edge.talk(b"POST /v1/completions HTTP/1.1\r\nhost: g\r\ncontent-length: 1000000\r\n\r\n{")
    raw = await talk.rest()
    assert status_of(raw) == 503
    assert edge.proxy.held.size == 0
