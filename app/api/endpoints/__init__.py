"""The paths that are served: one line each. What is not here is answered with 404 and reaches no worker.

An allow-list, because vLLM also serves paths that change or stop it, and protects few of them with its key.
"""

from typing import NamedTuple

from app.api.families import Family


class ProxyEndpoint(NamedTuple):
    """A path whose POST requests carry `model` in a JSON body and go to a worker of that model, path unchanged."""

    path: str
    family: Family = Family.OPENAI
    takes_salt: bool = False
    """The body has a `cache_salt` (vLLM 0.32's schema); where it has none, one that is added is ignored or refused."""
    can_stream: bool = False
    """With `"stream": true` in the body, the answer is an event stream."""


ENDPOINTS = (
    ProxyEndpoint("/v1/chat/completions", takes_salt=True, can_stream=True),
    ProxyEndpoint("/v1/chat/completions/batch", takes_salt=True),
    ProxyEndpoint("/v1/completions", takes_salt=True, can_stream=True),
    ProxyEndpoint("/v1/responses", Family.RESPONSES, takes_salt=True, can_stream=True),
    ProxyEndpoint("/v1/messages", Family.ANTHROPIC, takes_salt=True, can_stream=True),
    ProxyEndpoint("/v1/messages/count_tokens", Family.ANTHROPIC),
    ProxyEndpoint("/v1/embeddings"),
    ProxyEndpoint("/v2/embed"),
    ProxyEndpoint("/classify"),
    ProxyEndpoint("/pooling"),
    ProxyEndpoint("/score"),
    ProxyEndpoint("/v1/score"),
    ProxyEndpoint("/rerank"),
    ProxyEndpoint("/v1/rerank"),
    ProxyEndpoint("/v2/rerank"),
    ProxyEndpoint("/generative_scoring", takes_salt=True),
    ProxyEndpoint("/tokenize"),
    ProxyEndpoint("/detokenize"),
)
