"""Requests to send: chat completions of an exact size, no two with the same prompt."""

import random
import string
from collections.abc import Iterator

MODEL = "loadtest"

PATH = "/v1/chat/completions"

PREFIXES = 64
"""Shared prefixes. Half of the requests begin with one of them, as requests with the same system prompt do."""

SHARED = 0.5
"""Share of the prompt that a shared prefix is."""

SEED = 20

STUB_HEADER = b"x-loadtest"
"""Tells the stub what to stream: `EVENTS/STEP_MS`. The gateway passes it on like any header it does not know."""


class Prompts:
    """Endless requests with bodies of `size` bytes each.

    events: of the streamed answer, 0 for one that is not streamed. step_ms: between events.
    Building one costs a copy of the body and nothing else, so that the generator is not what is measured.
    """

    def __init__(self, size: int, *, events: int = 0, step_ms: int = 0, seed: int = SEED) -> None:
        rng = random.Random(seed)
        before = b'{"model":"' + MODEL.encode() + b'","messages":[{"role":"user","content":"'
        after = b'"}],"max_tokens":256,"temperature":0.7'
        after += b',"stream":true,"stream_options":{"include_usage":true}}' if events else b',"stream":false}'
        room = size - len(before) - len(after) - len(_stamp(0))
        if room < 2:
            raise ValueError(f"a body of {size} bytes has no room for a prompt")
        shared, own = int(room * SHARED), room - int(room * SHARED)
        head = self._head(size, events, step_ms)
        self._shared = [head + before + _words(rng, shared) for _ in range(PREFIXES)]
        self._bare = head + before
        self._own = _words(rng, own) + after
        self._whole = _words(rng, room) + after
        self._number = rng.randrange(1 << 40)

    def __iter__(self) -> Iterator[bytes]:
        shared, bare, own, whole = self._shared, self._bare, self._own, self._whole
        number = self._number
        while True:
            number += 1
            # The stamp comes after a shared prefix, and first of all in a prompt that shares nothing.
            if number & 1:
                yield b"".join((shared[(number >> 1) % PREFIXES], _stamp(number), own))
            else:
                yield b"".join((bare, _stamp(number), whole))

    @staticmethod
    def _head(size: int, events: int, step_ms: int) -> bytes:
        lines = [
            f"POST {PATH} HTTP/1.1",
            "host: 127.0.0.1",
            "user-agent: warmset-loadtest",
            "accept: application/json",
            "content-type: application/json",
            "authorization: Bearer sk-loadtest",
            f"content-length: {size}",
        ]
        if events:
            lines.append(f"{STUB_HEADER.decode()}: {events}/{step_ms}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _stamp(number: int) -> bytes:
    return b"%012x " % (number & 0xFFFFFFFFFFFF)


def _words(rng: random.Random, size: int) -> bytes:
    """`size` bytes of made-up words: what a tokenizer or a hash sees of English."""
    words: list[str] = []
    length = 0
    while length < size:
        word = "".join(rng.choices(string.ascii_lowercase, k=rng.randint(2, 9)))
        words.append(word)
        length += len(word) + 1
    return (" ".join(words) + " ")[:size].encode()
