"""What an engine serves and what it was started with, asked once for each incarnation of a worker."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple

import orjson

from app.signals.control import NoReply, Reply

Get = Callable[[str], Awaitable[Reply]]

SERVER_INFO = "/server_info?config_format=json"
"""vLLM answers it in development mode only."""

SNAPSHOT = re.compile(r"/snapshots/([0-9a-f]{40})/?$")
"""Where a model hub's cache keeps the files of one commit."""

MAX_REVISION = 128


class Inquiry(NamedTuple):
    """paths: those that are served, empty when that cannot be told. revision: of the weights, "" when not told."""

    paths: frozenset[str] = frozenset()
    revision: str = ""


async def inquire(get: Get, paths: Iterable[str], models: Mapping[str, bytes]) -> Inquiry:
    """Raises NoReply when the worker stops answering. models: its entries of `/v1/models`."""
    served = await served_paths(get, paths)
    return Inquiry(served, await _declared_revision(get) or revision_in(models))


async def served_paths(get: Get, paths: Iterable[str]) -> frozenset[str]:
    """Which of these POST paths there are: GET is not allowed (405) on one that is there, and not found (404) else.

    Costs the engine a look into its table of routes; an OpenAPI document would tell the same, but the first request for
    it holds up vLLM's event loop. What answers otherwise (a key that is refused, a proxy) cannot be told: it counts as
    served. When nothing answers 405 this is no server that can be asked so, and nothing is known.
    """
    statuses = {path: (await get(path)).status for path in paths}
    if 405 not in statuses.values():
        return frozenset()
    return frozenset(path for path, status in statuses.items() if status != 404)


def revision_in(models: Mapping[str, bytes]) -> str:
    """The commit that the folder of the weights is named after, when it is one of a hub's cache."""
    for entry in models.values():
        root = orjson.loads(entry).get("root")
        found = SNAPSHOT.search(root) if isinstance(root, str) else None
        if found is not None:
            return found[1]
    return ""


async def _declared_revision(get: Get) -> str:
    try:
        reply = await get(SERVER_INFO)
        revision = orjson.loads(reply.body)["vllm_config"]["model_config"]["revision"] if reply.status == 200 else ""
    except (NoReply, orjson.JSONDecodeError, LookupError, TypeError):
        return ""
    is_usable = isinstance(revision, str) and len(revision) <= MAX_REVISION and revision.isprintable()
    return revision if is_usable else ""
