"""What a worker says of itself at `/v1/models` and `/version`, checked."""

from collections.abc import Mapping

import orjson

MAX_MODELS = 4096
MAX_ID = 512
MAX_VERSION = 64
VOLATILE = frozenset({"created", "permission"})
"""Members that vLLM makes up anew for each answer (a time and random ids)."""


class Malformed(Exception):
    """An answer that says nothing that can be used."""


def read_models(body: bytes) -> dict[str, bytes]:
    """Model id -> its entry as JSON bytes, in the worker's order. Raises Malformed."""
    try:
        page = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise Malformed("the list of models is not JSON") from None
    entries = page.get("data") if isinstance(page, dict) else None
    if not isinstance(entries, list) or len(entries) > MAX_MODELS:
        raise Malformed("the list of models has no list of models")
    models = {}
    for entry in entries:
        model = entry.get("id") if isinstance(entry, dict) else None
        if not isinstance(model, str) or not 0 < len(model) <= MAX_ID or not model.isprintable():
            raise Malformed("a model has no id that can be used")
        models[model] = orjson.dumps(entry)
    return models


def read_version(body: bytes) -> str:
    """Raises Malformed."""
    try:
        page = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise Malformed("the version is not JSON") from None
    version = page.get("version") if isinstance(page, dict) else None
    if not isinstance(version, str) or not 0 < len(version) <= MAX_VERSION or not version.isprintable():
        raise Malformed("the version is not a text")
    return version


def same_models(one: Mapping[str, bytes], other: Mapping[str, bytes]) -> bool:
    """Whether two readings say the same, the volatile members aside."""
    return list(one) == list(other) and all(_stable(one[model]) == _stable(other[model]) for model in one)


def _stable(entry: bytes) -> dict[str, object]:
    return {name: value for name, value in orjson.loads(entry).items() if name not in VOLATILE}
