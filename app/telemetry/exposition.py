"""A registry in the format that a scraper asks for."""

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

OPENMETRICS = "application/openmetrics-text"


def encode(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """The exposition for an Accept header, and its content type."""
    # Not given the client's own text: it fails on a version that is no number, and repeats it in the answer.
    encoder, content_type = choose_encoder(OPENMETRICS if OPENMETRICS in accept else "")
    return encoder(registry), content_type
