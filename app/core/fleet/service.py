"""What a request asks of a worker, apart from the model: a task, at one of the paths that mean it."""

from dataclasses import dataclass
from enum import StrEnum


class Task(StrEnum):
    """What a model does. vLLM registers the routes of a task only when its model does that task."""

    GENERATE = "generate"
    EMBED = "embed"
    CLASSIFY = "classify"
    POOL = "pool"
    SCORE = "score"
    TOKENIZE = "tokenize"
    TRANSCRIBE = "transcribe"


@dataclass(frozen=True, slots=True, eq=False)
class Service:
    """One path that clients may use. Made once for each; compared and hashed by identity, which the hot path does.

    path: as the client wrote it. spellings: the paths under which an engine may serve the very same, `path` first.
    alternatives: every path of the task, this one's spellings included.
    """

    path: str
    task: Task
    spellings: tuple[str, ...]
    alternatives: frozenset[str]
