"""Streams that go on until a test has seen what it wants to see.

A stream of some seconds would be a bet on how long everything before its end takes. These end when their workers are
told to stop: politely, with the reason "abort".
"""

import threading

import openai
from openai import OpenAI

from app.commands.simulated import SimulatedFleet
from app.sim.worker.options import WorkerOptions
from tests.e2e.conftest import Gateway
from tests.patience import until

HELLO = [{"role": "user", "content": "Say hello"}]

ENDLESS = WorkerOptions(port=0, served_model_names=("endless",), speed=0.2)
"""About twenty pieces a second for each stream, so that many of them leave a machine time for other things."""

ENDLESS_TOKENS = 100_000
"""More than an hour."""


class Stream:
    """A client in a thread of its own. worker: who answers it. pieces: as many as it got. ended: how, "" until then."""

    def __init__(self, gateway: Gateway) -> None:
        self.worker = ""
        self.pieces = 0
        self.ended = ""
        self._url = gateway.data + "/v1"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            with OpenAI(base_url=self._url, api_key="unused", max_retries=0) as client:
                raw = client.chat.completions.with_raw_response.create(
                    model="endless", messages=HELLO, max_tokens=ENDLESS_TOKENS, stream=True
                )
                self.worker = raw.headers.get("x-warmset-worker", "")
                reason = None
                for chunk in raw.parse():
                    self.pieces += 1
                    for choice in chunk.choices:
                        reason = choice.finish_reason
                self.ended = reason or "cut"
        except openai.APIError as error:
            self.ended = str(error.code or type(error).__name__)
        except Exception as error:  # whatever a client sees of a server that was killed
            self.ended = type(error).__name__


def begin(gateway: Gateway, number: int) -> list[Stream]:
    """Several streams, each of which has begun."""
    streams = [Stream(gateway) for _ in range(number)]
    until(lambda: all(stream.pieces or stream.ended for stream in streams))
    assert not any(stream.ended for stream in streams), [stream.ended for stream in streams]
    return streams


def go_on(streams: list[Stream]) -> None:
    """Waits until each of them has got further pieces."""
    before = [stream.pieces for stream in streams]
    until(lambda: all(stream.pieces > had + 1 for stream, had in zip(streams, before, strict=True)))


def end_of(streams: list[Stream]) -> set[str]:
    """How they ended, once all have."""
    until(lambda: all(stream.ended for stream in streams))
    return {stream.ended for stream in streams}


def ask_to_end(fleet: SimulatedFleet) -> None:
    """Streams of these workers end properly."""
    for child in fleet._children:
        child.process.terminate()
