"""What a request that ended cost its tenant, in tokens."""

from app.core.fleet.reasons import Outcome
from app.core.fleet.record import RequestRecord

BYTES_PER_TOKEN = 4
"""Of a prompt in English; for answers whose usage the engine did not tell."""


def tokens_of(record: RequestRecord) -> int:
    """Prompt and completion tokens by the engine's own count.

    A stream tells its usage only when it is asked to, and an answer that was cut off never does. Left uncounted, either
    would be a way around the limit; so there the prompt is taken by its bytes and the answer by its events, which are
    mostly one token each.
    """
    if record.prompt_tokens is not None or record.completion_tokens is not None:
        return (record.prompt_tokens or 0) + (record.completion_tokens or 0)
    if record.events or record.outcome is Outcome.CLIENT_GONE:
        return record.bytes_in // BYTES_PER_TOKEN + record.events
    return 0
