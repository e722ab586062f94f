"""The paths that are served: one line each. What is not here is answered with 404 and reaches no worker.

An allow-list, because vLLM also serves paths that change or stop it, and protects few of them with its key.
"""

from collections.abc import Mapping
from typing import NamedTuple

from app.api.families import Family
from app.core.fleet.service import Service, Task


class ProxyEndpoint(NamedTuple):
    """A path whose POST requests carry `model` in their body and go to a worker of that model that does the task."""

    path: str
    task: Task
    family: Family = Family.OPENAI
    takes_salt: bool = False
    """The body has a `cache_salt` (vLLM 0.32's schema); where it has none, one that is added is ignored or refused."""
    can_stream: bool = False
    """With `"stream": true` in the body, the answer is an event stream."""
    batches: tuple[str, ...] = ()
    """Members of the body that may be a batch, beside those of every endpoint that has one."""
    is_form: bool = False
    """The body is a form with a file, not JSON."""
    splits: tuple[tuple[str, ...], ...] = ()
    """Members of the body that hold a batch whose inputs are read one by one: a row for each way to write it."""


INPUT = (("input",),)
PAIRS = (("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2"))
"""In the order in which vLLM 0.32 tries them."""


ENDPOINTS = (
    ProxyEndpoint("/v1/chat/completions", Task.GENERATE, takes_salt=True, can_stream=True),
    ProxyEndpoint("/v1/chat/completions/batch", Task.GENERATE, takes_salt=True, batches=("messages",)),
    ProxyEndpoint("/v1/completions", Task.GENERATE, takes_salt=True, can_stream=True),
    ProxyEndpoint("/v1/responses", Task.GENERATE, Family.RESPONSES, takes_salt=True, can_stream=True),
    ProxyEndpoint("/v1/messages", Task.GENERATE, Family.ANTHROPIC, takes_salt=True, can_stream=True),
    ProxyEndpoint("/v1/messages/count_tokens", Task.GENERATE, Family.ANTHROPIC),
    ProxyEndpoint("/v1/embeddings", Task.EMBED, takes_salt=True, splits=INPUT),
    ProxyEndpoint("/v2/embed", Task.EMBED),
    ProxyEndpoint("/v1/classify", Task.CLASSIFY, takes_salt=True, splits=INPUT),
    ProxyEndpoint("/classify", Task.CLASSIFY, takes_salt=True, splits=INPUT),
    ProxyEndpoint("/v1/pooling", Task.POOL, takes_salt=True, splits=INPUT),
    ProxyEndpoint("/pooling", Task.POOL, takes_salt=True, splits=INPUT),
    ProxyEndpoint("/v1/score", Task.SCORE, takes_salt=True, splits=PAIRS),
    ProxyEndpoint("/score", Task.SCORE, takes_salt=True, splits=PAIRS),
    ProxyEndpoint("/v1/rerank", Task.SCORE, takes_salt=True),
    ProxyEndpoint("/v2/rerank", Task.SCORE, takes_salt=True),
    ProxyEndpoint("/rerank", Task.SCORE, takes_salt=True),
    ProxyEndpoint("/generative_scoring", Task.GENERATE, takes_salt=True),
    ProxyEndpoint("/tokenize", Task.TOKENIZE),
    ProxyEndpoint("/detokenize", Task.TOKENIZE),
    ProxyEndpoint("/v1/audio/transcriptions", Task.TRANSCRIBE, is_form=True),
    ProxyEndpoint("/v1/audio/translations", Task.TRANSCRIBE, is_form=True),
)

SPELLINGS = (
    ("/v1/classify", "/classify"),
    ("/v1/pooling", "/pooling"),
    ("/v1/score", "/score"),
    ("/v1/rerank", "/v2/rerank", "/rerank"),
)
"""Paths that mean the same: a worker is asked at the client's own when it serves that, else at another of its row.
vLLM has `/classify` and `/pooling` only, Dynamo `/v1/classify` and `/v1/pooling` only."""


def _service(endpoint: ProxyEndpoint) -> Service:
    row = next((row for row in SPELLINGS if endpoint.path in row), ())
    spellings = (endpoint.path, *(path for path in row if path != endpoint.path))
    alternatives = frozenset(other.path for other in ENDPOINTS if other.task is endpoint.task)
    return Service(endpoint.path, endpoint.task, spellings, alternatives)


SERVICES: Mapping[str, Service] = {endpoint.path: _service(endpoint) for endpoint in ENDPOINTS}
"""Path -> what it asks of a worker."""
