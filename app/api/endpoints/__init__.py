"""The paths that are served: one line each. What is not here is answered with 404 and reaches no worker.

An allow-list, because vLLM also serves paths that change or stop it, and protects few of them with its key.
"""

from dataclasses import dataclass, field

from app.api.families import Family
from app.core.fleet.service import Service, Task

SPELLINGS = (
    ("/v1/classify", "/classify"),
    ("/v1/pooling", "/pooling"),
    ("/v1/score", "/score"),
    ("/v1/rerank", "/v2/rerank", "/rerank"),
)
"""Paths that mean the same: a worker is asked at the client's own when it serves that, else at another of its row.
vLLM has `/classify` and `/pooling` only, Dynamo `/v1/classify` and `/v1/pooling` only."""


@dataclass(frozen=True, slots=True)
class ProxyEndpoint:
    """A path whose POST requests carry `model` in a JSON body and go to a worker of that model that does the task."""

    path: str
    task: Task
    family: Family = Family.OPENAI
    takes_salt: bool = False
    """The body has a `cache_salt` (vLLM 0.32's schema); where it has none, one that is added is ignored or refused."""
    service: Service = field(init=False)

    def __post_init__(self) -> None:
        row = next((row for row in SPELLINGS if self.path in row), (self.path,))
        spellings = (self.path, *(path for path in row if path != self.path))
        paths = frozenset(path for path, task in TASKS.items() if task is self.task)
        object.__setattr__(self, "service", Service(self.path, self.task, spellings, paths))
