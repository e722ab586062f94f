"""Token counts as each kind of answer reports them."""

from collections.abc import Sequence
from typing import Any

from app.sim.worker.driver import Generation
from app.sim.worker.sampling import Answer
from app.sim.worker.simulated import SimulatedWorker


class Usage:
    """Sums over the answers of one client request; answers to the same prompt count it once, as vLLM does."""

    def __init__(self, worker: SimulatedWorker, generation: Generation, answers: Sequence[Answer], n: int) -> None:
        firsts = answers[::n]
        self.prompt_tokens = sum(len(answer.prompt) for answer in firsts)
        self.completion_tokens = sum(generation.generated(answer.request) for answer in answers)
        self.cached_tokens = sum(answer.request.cached_tokens for answer in firsts)
        self.created_tokens = sum(answer.request.created_blocks for answer in answers) * worker.settings.block_size

    @property
    def counts(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "completion_tokens": self.completion_tokens,
        }

    def whole(self, *, created: bool) -> dict[str, Any]:
        """Of an answer in one piece; only chat reports what it put into the cache."""
        details = {
            "cached_tokens": self.cached_tokens,
            "created_cache_tokens": self.created_tokens if created else None,
            "multimodal_tokens": None,
        }
        return {**self.counts, "prompt_tokens_details": details, "completion_tokens_details": None}

    def final(self, *, created: bool) -> dict[str, Any]:
        """Of a stream's last chunk."""
        details = {"cached_tokens": self.cached_tokens}
        if created:
            details["created_cache_tokens"] = self.created_tokens
        return {**self.counts, "prompt_tokens_details": details}

    @staticmethod
    def running(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
        """Of one chunk in between; chat adds `"completion_tokens_details": null`."""
        return {
            "prompt_tokens": prompt_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
            "completion_tokens": completion_tokens,
        }


def pooled_usage(tokens: int) -> dict[str, Any]:
    """Of an answer for which tokens were only read."""
    return {
        "prompt_tokens": tokens,
        "total_tokens": tokens,
        "completion_tokens": 0,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }
