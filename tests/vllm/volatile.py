"""The one place that says which bytes of two equal answers of one worker may differ.

Both sides are asked with the same `X-Request-Id`, from which vLLM makes most ids. What is left is replaced by zeros of
the same length, so that lengths stay comparable: the wall-clock second, and ids that the engine draws at random.
"""

import re

VOLATILE = (
    re.compile(rb'(?<="created":)\d{10}(?=[,}])'),
    re.compile(rb'(?<="created": )\d{10}(?=[,}])'),
    re.compile(rb'(?<="created_at":)\d{10}(?=[,}])'),
    re.compile(rb'(?<=id":"resp_)[0-9a-f]{16}(?=")'),
    re.compile(rb'(?<=id":"msg_)[0-9a-f]{16}(?=")'),
    re.compile(rb'(?<="id":"chatcmpl-tool-)[0-9a-f]{16}(?=")'),
)


def steady(answer: bytes) -> bytes:
    """The answer with what may differ blanked out."""
    for pattern in VOLATILE:
        answer = pattern.sub(lambda match: b"0" * len(match[0]), answer)
    return answer
