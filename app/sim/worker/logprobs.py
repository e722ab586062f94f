"""Made-up log probabilities in the two shapes of the OpenAI API; the sampled token is always the likeliest."""

from collections.abc import Sequence
from typing import Any

from app.sim.worker.sampling import Answer, Sampling
from app.sim.worker.simulated import SimulatedWorker
from app.sim.worker.text import logprob
from app.sim.worker.tokens import piece_of, token_id

Candidate = tuple[bytes, float]


def candidates(worker: SimulatedWorker, sampling: Sampling, answer: Answer, position: int) -> list[Candidate]:
    """(token, log probability) at `position`: the sampled token, then what the client asked to see beside it.

    `logprob_token_ids` replaces the top list, in the order of the request, after the sampled token.
    """
    sampled = answer.tokens[position]
    if sampling.logprob_token_ids is not None:
        others = [piece_of(number) for number in sampling.logprob_token_ids]
        shown = len(others) + 1
    else:
        shown = sampling.top_logprobs or 0
        alternatives = worker.text.alternatives(answer.key, position, shown + 1)
        others = [piece for piece in alternatives if piece != sampled]
    ranked = enumerate([sampled, *others][: max(1, shown)])
    return [(piece, logprob(answer.key, position, piece, rank)) for rank, piece in ranked]


def chat_logprobs(
    worker: SimulatedWorker, sampling: Sampling, answer: Answer, start: int, end: int
) -> dict[str, Any] | None:
    """Of the tokens in [start, end), as /v1/chat/completions has them; None when not asked for."""
    if sampling.top_logprobs is None:
        return None
    content = []
    for position in range(start, end):
        found = candidates(worker, sampling, answer, position)
        top = found if sampling.top_logprobs or sampling.logprob_token_ids is not None else []
        content.append(
            {
                **_entry(sampling, *found[0], sampled=True),
                "top_logprobs": [_entry(sampling, piece, value, sampled=False) for piece, value in top],
            }
        )
    return {"content": content}


def _entry(sampling: Sampling, piece: bytes, value: float, *, sampled: bool) -> dict[str, Any]:
    name = f"token_id:{token_id(piece)}" if sampling.tokens_as_ids else piece.decode("utf-8", "replace")
    # vLLM gives the bytes of the written id for tokens of the top list, and the token's own for the sampled one.
    shown = name.encode() if sampling.tokens_as_ids and not sampled else piece
    return {"token": name, "logprob": value, "bytes": list(shown)}


def completion_logprobs(
    worker: SimulatedWorker, sampling: Sampling, answer: Answer, start: int, end: int, offset: int = 0
) -> dict[str, Any] | None:
    """Of the tokens in [start, end), as /v1/completions has them: lists, and a dict by token text per position.

    `offset` is the length of the text before `start`.
    """
    if sampling.top_logprobs is None:
        return None
    offsets, values, names, tops = [], [], [], []
    for position in range(start, end):
        found = candidates(worker, sampling, answer, position)
        named = [(_entry(sampling, piece, value, sampled=True)["token"], value) for piece, value in found]
        offsets.append(offset)
        offset += len(answer.tokens[position].decode("utf-8", "replace"))
        names.append(named[0][0])
        values.append(named[0][1])
        tops.append(dict(named))
    return {"text_offset": offsets, "token_logprobs": values, "tokens": names, "top_logprobs": tops}


def prompt_logprobs(worker: SimulatedWorker, prompt: Sequence[bytes], key: bytes, count: int) -> list[Any]:
    """Per prompt token a dict by token id; null for the first, which nothing precedes."""
    entries: list[Any] = [None]
    for position, piece in enumerate(prompt[1:], start=1):
        alternatives = [other for other in worker.text.alternatives(key, position, count + 1) if other != piece]
        shown = [piece, *alternatives[:count]]
        entries.append(
            {
                str(token_id(item)): {
                    "logprob": logprob(key, position, item, rank),
                    "rank": rank + 1,
                    "decoded_token": item.decode("utf-8", "replace"),
                }
                for rank, item in enumerate(shown)
            }
        )
    return entries
