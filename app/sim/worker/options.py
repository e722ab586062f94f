"""What a simulated worker can be told, and the command line that tells it; needs nothing but the standard library."""

import os
import sys
from dataclasses import dataclass

TASKS = ("generate", "embed", "classify", "score")
# Named here too, so that `--help` and building an argv do not load the engine; a test compares it with PROFILES.
PROFILE_NAMES = ("llama33-70b-fp8-h100-tp2", "llama33-70b-fp8-h100-tp4", "llama33-70b-fp8-h100-tp8")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """One worker. `port` 0 takes a free one; `speed` divides every duration (inf: no waiting); `None` leaves a limit to
    the profile. `parent_pid` is the process that must outlive the worker: None does not care, 0 is whoever is the
    parent when the worker starts.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    served_model_names: tuple[str, ...] = ("warmset-simulated",)
    model_profile: str = "llama33-70b-fp8-h100-tp8"
    task: str = "generate"
    speed: float = 1.0
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    max_num_queued_reqs: int | None = None
    max_model_len: int | None = None
    block_size: int = 16
    num_gpu_blocks_override: int | None = None
    api_key: str | None = None
    seed: int = 0
    embedding_dim: int = 384
    labels: tuple[str, ...] = ("billing", "technical", "other")
    enable_server_load_tracking: bool = False
    enable_request_id_headers: bool = False
    parent_pid: int | None = None

    def argv(self, *, die_with_me: bool = False) -> list[str]:
        """The command that starts this worker with this interpreter; `die_with_me` ties it to the calling process."""
        arguments = [sys.executable, "-P", "-m", "app", "worker", "--host", self.host, "--port", str(self.port)]
        for name in self.served_model_names:
            # `=`: a value that starts with a dash is not taken for an option.
            arguments.append(f"--served-model-name={name}")
        for option, value in (
            ("--model-profile", self.model_profile),
            ("--task", self.task),
            ("--speed", self.speed),
            ("--max-num-seqs", self.max_num_seqs),
            ("--max-num-batched-tokens", self.max_num_batched_tokens),
            ("--max-num-queued-reqs", self.max_num_queued_reqs),
            ("--max-model-len", self.max_model_len),
            ("--block-size", self.block_size),
            ("--num-gpu-blocks-override", self.num_gpu_blocks_override),
            ("--api-key", self.api_key),
            ("--seed", self.seed),
            ("--embedding-dim", self.embedding_dim),
            ("--labels", ",".join(self.labels)),
            ("--die-with-parent", os.getpid() if die_with_me else self.parent_pid),
        ):
            if value is not None:
                arguments.append(f"{option}={value}")
        for option, is_set in (
            ("--enable-server-load-tracking", self.enable_server_load_tracking),
            ("--enable-request-id-headers", self.enable_request_id_headers),
        ):
            if is_set:
                arguments.append(option)
        return arguments
