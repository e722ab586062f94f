"""What became of one request, for metrics and logs. Never a prompt, never an answer."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.core.fleet.commands import Dispatch
from app.core.fleet.reasons import Outcome


@dataclass(slots=True)
class RequestRecord:
    """Filled in as the request goes on; what did not come about stays as it is here.

    started_at: monotonic seconds, when the head of the request was read. model: a served model id, else "".
    queued_s: what it waited for its turn, until a worker began to answer.
    ttft_s: until the first byte of the answer's body left for the client; None when there was none.
    gap_counts, gap_sum_s: gaps between events of a stream, by class (see telemetry for the classes), and their sum.
    prompt_tokens, completion_tokens, cached_tokens: as the engine counted them; None where it did not say.
    tenant, key_name: whose request it is, and the name of the key that it came with; "" before that is known.
    over: which limit of the tenant was in its way, "" when none was.
    refusal: the reason's value when the gateway itself answered.
    """

    request_id: str
    method: str
    endpoint: str
    started_at: float
    model: str = ""
    status: int = 0
    outcome: Outcome = Outcome.FAILED
    refusal: str = ""
    tenant: str = ""
    key_name: str = ""
    over: str = ""
    dispatch: Dispatch | None = None
    duration_s: float = 0.0
    queued_s: float = 0.0
    ttft_s: float | None = None
    events: int = 0
    gap_counts: Sequence[int] = ()
    gap_sum_s: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
