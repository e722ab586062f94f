"""The parameters that shape an answer, read and refused as vLLM does, and the answers planned from them.

The whole output is decided when the request arrives (the text is a function of prompt and seed); the engine only
decides when each token of it appears.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app.sim.engine import EngineRequest, FinishReason
from app.sim.worker.driver import Generation
from app.sim.worker.errors import ApiError, bad_value
from app.sim.worker.fields import Fields
from app.sim.worker.simulated import SimulatedWorker
from app.sim.worker.text import answer_key
from app.sim.worker.tokens import VOCABULARY, text_of

MOST_LOGPROBS = 20
MOST_LOGPROB_TOKEN_IDS = 128
# A temperature below this picks the likeliest token each time.
GREEDY = 1e-5


@dataclass(slots=True, kw_only=True)
class Sampling:
    """Checked parameters. `max_tokens` None leaves the length to the text; `top_logprobs` None wants none at all."""

    model: str | None
    n: int = 1
    max_tokens: int | None = None
    max_tokens_name: str = "max_tokens"
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    cache_salt: str | None = None
    return_token_ids: bool = False
    tokens_as_ids: bool = False
    top_logprobs: int | None = None
    logprob_token_ids: tuple[int, ...] | None = None
    temperature: float = 1.0
    top_p: float = 1.0


@dataclass(slots=True)
class Answer:
    """One planned output: its tokens, why it will end there, and the engine request that paces it."""

    index: int
    key: bytes
    tokens: Sequence[bytes]
    stop_reason: str | None
    request: EngineRequest
    prompt: Sequence[bytes]
    sent: int = 0  # tokens already streamed
    closed: bool = False  # its last chunk was sent

    @property
    def finish_reason(self) -> str | None:
        reason = self.request.finish_reason
        return None if reason is None else reason.value

    @property
    def aborted(self) -> bool:
        return self.request.finish_reason is FinishReason.ABORT


def read_sampling(fields: Fields) -> Sampling:
    """The parameters that all generating endpoints share; complaints wait in `fields` for `check()`."""
    options = fields.mapping("stream_options")
    stop = fields.get("stop")
    sampling = Sampling(
        model=fields.text("model"),
        n=1 if (n := fields.integer("n")) is None else n,
        seed=fields.integer("seed"),
        stop=tuple(item for item in ([stop] if isinstance(stop, str) else stop or ()) if item),
        stream=fields.flag("stream"),
        include_usage=bool(options.get("include_usage")),
        continuous_usage=bool(options.get("include_usage") and options.get("continuous_usage_stats")),
        cache_salt=fields.text("cache_salt"),
        return_token_ids=fields.flag("return_token_ids"),
        tokens_as_ids=fields.flag("return_tokens_as_token_ids"),
        temperature=1.0 if (temperature := fields.number("temperature")) is None else temperature,
        top_p=1.0 if (top_p := fields.number("top_p")) is None else top_p,
    )
    sampling.logprob_token_ids = tuple(fields.integers("logprob_token_ids")) or None
    return sampling


def check_sampling(sampling: Sampling, worker: SimulatedWorker) -> None:
    """400 for values that vLLM's engine layer refuses."""
    limit = worker.settings.model_len
    if sampling.temperature < 0:
        raise bad_value(
            f"temperature must be non-negative, got {sampling.temperature}.", "temperature", sampling.temperature
        )
    if not 0 < sampling.top_p <= 1:
        raise bad_value(f"top_p must be in (0, 1], got {sampling.top_p}.", "top_p", sampling.top_p)
    if sampling.n < 1:
        raise ApiError(400, f"n must be at least 1, got {sampling.n}.")
    if sampling.n > 1 and sampling.temperature < GREEDY:
        raise ApiError(400, f"n must be 1 when using greedy sampling, got {sampling.n}.")
    if sampling.max_tokens is not None and sampling.max_tokens < 1:
        raise bad_value(f"max_tokens must be at least 1, got {sampling.max_tokens}.", "max_tokens", sampling.max_tokens)
    if sampling.max_tokens is not None and sampling.max_tokens > limit:
        name = sampling.max_tokens_name
        message = (
            f"{name}={sampling.max_tokens} cannot be greater than max_model_len={limit}. "
            "Please request fewer output tokens."
        )
        raise bad_value(message, name, sampling.max_tokens)
    if sampling.top_logprobs is not None and sampling.top_logprobs > MOST_LOGPROBS:
        message = (
            f"Requested sample logprobs of {sampling.top_logprobs}, which is greater than max allowed: {MOST_LOGPROBS}"
        )
        raise bad_value(message, "logprobs", sampling.top_logprobs)
    if sampling.logprob_token_ids is not None:
        count = len(sampling.logprob_token_ids)
        if count > MOST_LOGPROB_TOKEN_IDS:
            message = (
                f"Requested logprob_token_ids of length {count}, "
                f"which is greater than max allowed: {MOST_LOGPROB_TOKEN_IDS}"
            )
            raise bad_value(message, "logprob_token_ids", count)
        unknown = [number for number in sampling.logprob_token_ids if not 0 <= number < VOCABULARY]
        if unknown:
            message = (
                f"token_id(s) {unknown} in logprob_token_ids contain out-of-vocab token ids. "
                f"Vocabulary size: {VOCABULARY}"
            )
            raise bad_value(message, "logprob_token_ids", unknown)


def plan(
    worker: SimulatedWorker,
    sampling: Sampling,
    prompt: Sequence[bytes],
    *,
    first_index: int = 0,
    counted: bool = False,
) -> list[Answer]:
    """The `n` answers to one prompt, not yet queued."""
    if not prompt:
        raise ApiError(400, "The decoder prompt cannot be empty")
    worker.check_length(len(prompt), counted=counted)
    room = worker.settings.model_len - len(prompt)
    if not room:
        raise bad_value("max_tokens must be at least 1, got 0.", "max_tokens", 0)
    hashes = worker.block_hashes(prompt, sampling.cache_salt)
    answers = []
    for index in range(sampling.n):
        key = answer_key(prompt, worker.options.seed, sampling.seed, index)
        length = sampling.max_tokens
        stops = False
        if length is None:
            length = worker.text.natural_length(key)
            stops = length <= room
        tokens: Sequence[bytes] = worker.text.answer(key, min(length, room))
        tokens, stop_reason = _cut_at_stop(tokens, sampling.stop)
        request = EngineRequest(
            prompt_tokens=len(prompt),
            output_tokens=max(1, len(tokens)),
            # The blocks that the answer fills are cached too: the next turn of the conversation begins with them.
            block_hashes=worker.block_hashes([*prompt, *tokens], sampling.cache_salt, hashes),
            ends_by_stop=stops or stop_reason is not None,
        )
        answers.append(Answer(first_index + index, key, tokens, stop_reason, request, prompt))
    return answers


def submit(worker: SimulatedWorker, answers: Sequence[Answer], *, streams: bool) -> Generation:
    """Queue the answers; 503 when the engine is full."""
    generation = worker.driver.submit([answer.request for answer in answers], streams=streams)
    worker.observations.asked(len(answers), max(answer.request.output_tokens for answer in answers))
    return generation


def take_new(generation: Generation, answer: Answer) -> tuple[int, int]:
    """The range of the answer's tokens that were generated and not yet sent; marks them as sent."""
    start, end = answer.sent, min(generation.generated(answer.request), len(answer.tokens))
    answer.sent = end
    return start, end


def _cut_at_stop(tokens: Sequence[bytes], stops: Sequence[str]) -> tuple[Sequence[bytes], str | None]:
    """The tokens up to the earliest of `stops` (which is not part of the answer), and which one it was."""
    if not stops:
        return tokens, None
    text = text_of(tokens)
    at, stop = min(((found, item) for item in stops if (found := text.find(item)) >= 0), default=(-1, None))
    if stop is None:
        return tokens, None
    kept, length = [], 0
    for piece in tokens:
        if length + len(piece) > at:
            # Output text is ASCII, so bytes and characters count the same.
            kept.append(piece[: at - length])
            break
        kept.append(piece)
        length += len(piece)
    return [piece for piece in kept if piece], stop
