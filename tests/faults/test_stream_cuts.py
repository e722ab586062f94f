"""Event streams in any pieces, cut anywhere: what a client reads is whole events, and one error when it was cut."""

import asyncio
import json
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.api.conftest import Edge
from tests.api.raw import dechunk
from tests.fakes.raw_worker import Connected, RawWorker
from tests.patience import PATIENCE_S

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
POST = (
    b"POST /v1/completions HTTP/1.1\r\nhost: g\r\nconnection: close\r\ncontent-length: 14\r\n\r\n" + b'{"model": "m"}'
)

line_ends = st.sampled_from((b"\n", b"\r\n", b"\r"))
texts = st.text(max_size=30).map(lambda text: json.dumps({"text": text}, ensure_ascii=False).encode())


@st.composite
def events(draw: st.DrawFn) -> bytes:
    """One event as some server would write it; its lines all end in the same way."""
    end = draw(line_ends)
    lines = [b"data: " + draw(texts)]
    if draw(st.booleans()):
        lines.insert(0, b"event: delta")
    if draw(st.booleans()):
        lines.insert(0, draw(st.sampled_from((b": ping", b"id: 7", b"retry: 10", b":"))))
    return end.join(lines) + end + end


def pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(stream) + 1) for cut in cuts} | {0, len(stream)})
    return [stream[start:end] for start, end in pairwise(places)]


def read_events(stream: bytes) -> list[str]:
    """The data of each event, as the specification has them read; one without its blank line does not count."""
    # Not splitlines: it also splits at U+2028 and other characters that the specification leaves alone.
    text = stream.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    found, data = [], []
    *lines, _ = text.split("\n")
    for line in lines:
        name, _, value = line.partition(":")
        if line == "" and data:
            found.append("\n".join(data))
            data = []
        elif name == "data":
            data.append(value.removeprefix(" "))
    return found


class Scripted:
    """A worker's script that is told anew before each request."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.is_cut = False
        self.pause = False

    async def __call__(self, connection: Connected) -> None:
        while True:
            await connection.read_request()
            connection.requests.clear()
            await connection.send(HEAD)
            for piece in self.pieces:
                await connection.send(b"%x\r\n%s\r\n" % (len(piece), piece))
                await asyncio.sleep(0.001 if self.pause else 0)
            if self.is_cut:
                return  # closes, as of a process that is gone: a reset would overtake what was sent
            await connection.send(b"0\r\n\r\n")


async def test_any_stream_in_any_pieces_cut_anywhere(edge: Edge) -> None:
    script = Scripted()
    loop = asyncio.get_running_loop()

    async def ask() -> bytes:
        talk = await edge.talk(POST)
        raw = await talk.rest()
        talk.leave()
        edge.talks.clear()
        edge.told.records.clear()
        return dechunk(raw.split(b"\r\n\r\n", 1)[1])

    @settings(max_examples=400, deadline=None, database=None)
    @given(
        st.lists(events(), max_size=6),
        st.lists(st.integers(0, 2000), max_size=8),
        st.none() | st.integers(0, 2000),
        st.booleans(),
    )
    def check(written: list[bytes], cuts: list[int], cut_at: int | None, pause: bool) -> None:
        stream = b"".join(written)
        script.is_cut = cut_at is not None
        script.pause = pause
        sent = stream if cut_at is None else stream[: cut_at % (len(stream) + 1)]
        script.pieces = pieces(sent, cuts)
        got = asyncio.run_coroutine_threadsafe(ask(), loop).result(PATIENCE_S)
        if not script.is_cut:
            assert got == stream
            return
        seen: list[dict[str, Any]] = [json.loads(data) for data in read_events(got)]
        assert seen, "a cut stream says so"
        assert seen[-1]["error"]["code"] == "worker_stream_broken"
        passed = [event["text"] for event in seen[:-1]]
        # A CR at the end may be half a CRLF: the event before it is whole, but not known to be.
        assert passed in [[json.loads(data)["text"] for data in read_events(part)] for part in (sent, sent[:-1])]
        assert got.count(b"worker_stream_broken") == 1
        assert got.startswith(sent[: sent_whole(sent)])

    async with RawWorker(script) as worker:
        edge.add(worker)
        await asyncio.to_thread(check)
        await edge.at_rest()


def sent_whole(sent: bytes) -> int:
    """Where the last event that is whole without doubt ends: a lone CR may be half a CRLF."""
    return max((sent.rfind(mark) + len(mark) for mark in (b"\n\n", b"\r\n\r\n") if mark in sent), default=0)
