"""One simulated worker: engine, clock, text, metrics and names, as the endpoints see it."""

import time
from collections.abc import Sequence
from hashlib import blake2b

from app.sim.engine import PROFILES, Engine, EngineRequest, EngineSettings, chain_hashes
from app.sim.worker.driver import EngineDriver, Generation
from app.sim.worker.errors import ApiError
from app.sim.worker.observations import Observations
from app.sim.worker.options import WorkerOptions
from app.sim.worker.text import Text

# The vLLM release whose answers are imitated.
VLLM_VERSION = "0.32.0"


class SimulatedWorker:
    """Built from options; ValueError when they do not fit together."""

    def __init__(self, options: WorkerOptions) -> None:
        if not options.served_model_names:
            raise ValueError("a worker serves at least one model name")
        if not options.speed > 0:
            raise ValueError("speed must be greater than 0")
        self.options = options
        self.settings = EngineSettings(
            profile=PROFILES[options.model_profile],
            block_size=options.block_size,
            num_blocks=options.num_gpu_blocks_override,
            max_num_seqs=options.max_num_seqs,
            max_num_batched_tokens=options.max_num_batched_tokens,
            max_num_queued_reqs=options.max_num_queued_reqs,
            max_model_len=options.max_model_len,
            # vLLM has no prefix cache for its pooling models either.
            prefix_caching=options.task == "generate",
        )
        self.engine = Engine(self.settings)
        self.observations = Observations(self.engine, self.model_name)
        self.driver = EngineDriver(self.engine, self.observations, options.speed)
        self.text = Text(options.seed)
        digest = blake2b(repr(self.settings).encode(), digest_size=4).hexdigest()
        self.system_fingerprint = f"warmset-simulated-{VLLM_VERSION}-{digest}"

    @property
    def model_name(self) -> str:
        """What answers call the model, whichever of its names the client used."""
        return self.options.served_model_names[0]

    def check_model(self, name: str | None, *, pooling: bool = False) -> None:
        """404 for a name that is not served; no name is taken for the first one. Pooling words it shorter."""
        names = self.options.served_model_names
        if not name or name in names:
            return
        if pooling:
            raise ApiError(404, f"The model `{name}` does not exist.")
        aliases = ", ".join(names)
        raise ApiError(404, f"The model `{name}` does not exist. Valid aliases: {aliases}.", param="model")

    def check_length(self, prompt_tokens: int, *, counted: bool = False) -> None:
        """400 when a prompt does not fit the model's context.

        `counted`: the client sent token ids. Of a text no more is read than tells that it is too long.
        """
        limit = self.settings.model_len
        if prompt_tokens > limit:
            told = prompt_tokens if counted else limit + 1
            message = (
                f"This model's maximum context length is {limit} tokens. However, your prompt contains "
                f"{'' if counted else 'at least '}{told} input tokens, which exceeds this limit even without any "
                f"output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value={told})"
            )
            raise ApiError(400, message, param="input_tokens")

    def block_hashes(self, tokens: Sequence[bytes], salt: str | None, known: Sequence[bytes] = ()) -> list[bytes]:
        return chain_hashes(tokens, self.settings.block_size, (salt or "").encode("utf-8", "surrogatepass"), known)

    def pool(self, prompt_tokens: Sequence[int]) -> Generation:
        """Queue prompts that are only read (embedding, classification, scoring): one engine request each."""
        requests = [EngineRequest(max(1, tokens), 0) for tokens in prompt_tokens]
        self.observations.asked(1, 0)
        return self.driver.submit(requests, streams=False)


def created_s() -> int:
    """Wall-clock seconds, for the `created` fields."""
    return int(time.time())
