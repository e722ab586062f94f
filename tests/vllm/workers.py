"""The live workers: two that serve the chat model, one the embedding model, and one the classifier."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.patience import lasting_ports
from tests.vllm.engine import Engine
from tests.vllm.once import environment
from tests.vllm.process import ServerProcess, is_healthy

CHAT_MODEL = "tiny"
EMBEDDING_MODEL = "minilm"
CLASSIFIER = "labels"

# A start takes 25 s of processor time. A box under load has been seen to need 200 s for one; three share two cores.
START_LIMIT_S = 900.0

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    # Left to itself every worker would pin its threads to the same first core.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}

COMMON = (
    # Despite its name a share of the machine's memory, checked at the start: the default asks for nearly all of it.
    *("--gpu-memory-utilization", "0.1", "--kv-cache-memory-bytes", "128M"),
    # bfloat16 once died with SIGILL on a processor with AMX.
    *("--dtype", "float32", "--enforce-eager", "--max-num-seqs", "16"),
)

CHAT = (
    *("--served-model-name", CHAT_MODEL, "--max-model-len", "2048", "--block-size", "32"),
    "--enable-prompt-tokens-details",
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
    # A random model loves whitespace: where a JSON grammar lets it, it writes nothing else.
    *("--structured-outputs-config", json.dumps({"backend": "xgrammar", "disable_any_whitespace": True})),
)

EMBEDDING = ("--served-model-name", EMBEDDING_MODEL)
CLASSIFY = ("--served-model-name", CLASSIFIER)


@dataclass(frozen=True, slots=True)
class Workers:
    chat: tuple[ServerProcess, ServerProcess]
    embedding: ServerProcess
    classifier: ServerProcess

    @property
    def all(self) -> tuple[ServerProcess, ...]:
        return (*self.chat, self.embedding, self.classifier)

    def serving(self, model: str) -> tuple[ServerProcess, ...]:
        return {CHAT_MODEL: self.chat, EMBEDDING_MODEL: (self.embedding,), CLASSIFIER: (self.classifier,)}[model]

    def by_id(self, worker_id: str) -> ServerProcess:
        """The worker that the gateway calls `host:port`."""
        return next(worker for worker in self.all if worker.url == f"http://{worker_id}")


@contextmanager
def running(engine: Engine, logs: Path) -> Iterator[Workers]:
    """Start all at once, wait for all, and stop them in the end.

    Measured on 2 cores with nothing else to do: 38 to 59 s for three at once, 25 s each in turn.
    """
    plan = (
        ("chat-a", engine.models / "chat", CHAT),
        ("chat-b", engine.models / "chat", CHAT),
        ("embedding", engine.embedder, EMBEDDING),
        ("classifier", engine.models / "classifier", CLASSIFY),
    )
    started: list[ServerProcess] = []
    # Killed workers leave sockets and files behind. Not beside the logs, since a socket's path must be short.
    with TemporaryDirectory(prefix="vllm-") as scratch:
        variables = environment() | ENVIRONMENT | {"TMPDIR": scratch}
        try:
            for (name, model, options), port in zip(plan, lasting_ports(len(plan)), strict=True):
                vllm = (engine.python, "-m", "vllm.entrypoints.cli.main", "serve", model)
                command = (*vllm, "--host", "127.0.0.1", "--port", str(port), *COMMON, *options)
                started.append(ServerProcess(name, port, command, variables, logs))
            for worker in started:
                worker.wait_until(is_healthy, START_LIMIT_S)
            chat_a, chat_b, embedding, classifier = started
            yield Workers((chat_a, chat_b), embedding, classifier)
        finally:
            for worker in started:
                worker.begin_stop()
            for worker in started:
                worker.finish_stop()
