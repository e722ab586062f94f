"""`GET /v1/models`: what all pools serve together, in the workers' own words."""

from collections.abc import Callable, Mapping
from urllib.parse import unquote_to_bytes

import orjson

from app.core.router import Router

MayUse = Callable[..., bool]
"""Whether a key is for a model of these names."""


def list_models(router: Router, aliases: Mapping[str, str], may: MayUse) -> bytes:
    """The merged list of what a key may use: each model once, by id, as the first worker that serves it describes it;
    then the aliases."""
    entries = [_entry(router, model) for model in sorted(router.pools) if may(model)]
    entries += [
        _alias(router, alias, target)
        for alias, target in sorted(aliases.items())
        if target in router.pools and may(alias, target)
    ]
    return b'{"object":"list","data":[' + b",".join(entries) + b"]}"


def find_model(router: Router, aliases: Mapping[str, str], raw_name: bytes, may: MayUse) -> bytes | None:
    """The entry of one model, named as in a URL path; None when nobody serves it or the key may not use it."""
    name = unquote_to_bytes(raw_name).decode("utf-8", "replace")
    target = aliases.get(name)
    if target in router.pools and target is not None:
        return _alias(router, name, target) if may(name, target) else None
    return _entry(router, name) if name in router.pools and may(name) else None


def _entry(router: Router, model: str) -> bytes:
    return router.pools[model].members[0].worker.models[model]


def _alias(router: Router, alias: str, target: str) -> bytes:
    entry = orjson.loads(_entry(router, target))
    return orjson.dumps(entry | {"id": alias, "parent": target})
