"""Revisions as workers tell them."""

from typing import Any

import orjson
import pytest

from app.signals.control import NoReply, Reply
from app.signals.inquiry import SERVER_INFO, Inquiry, inquire

COMMIT = "0123456789abcdef0123456789abcdef01234567"


async def asked(info: Reply | None, root: Any = "/models/llama") -> Inquiry:
    async def get(path: str) -> Reply:
        if path != SERVER_INFO:
            return Reply(405, b"")
        if info is None:
            raise NoReply("late", reachable=True)
        return info

    return await inquire(get, ["/pooling"], {"m": orjson.dumps({"id": "m", "root": root})})


@pytest.mark.parametrize(
    ("body", "revision"),
    [
        (b'{"vllm_config":{"model_config":{"revision":"main"}}}', "main"),
        (b'{"vllm_config":{"model_config":{"revision":null}}}', ""),
        (b'{"vllm_config":"a text"}', ""),
        (b'{"vllm_config":{"model_config":{"revision":"a\\nb"}}}', ""),
        (b'{"vllm_config":{"model_config":{"revision":7}}}', ""),
        (b"[]", ""),
        (b"<html>", ""),
    ],
)
async def test_a_revision_that_the_server_tells(body: bytes, revision: str) -> None:
    assert await asked(Reply(200, body)) == Inquiry(frozenset({"/pooling"}), revision)


@pytest.mark.parametrize("info", [None, Reply(404, b"{}"), Reply(200, b'{"vllm_config":{"model_config":{}}}')])
async def test_else_the_commit_that_the_weights_folder_is_named_after(info: Reply | None) -> None:
    assert (await asked(info, f"/hub/models--org--llama/snapshots/{COMMIT}")).revision == COMMIT
    assert (await asked(info, f"/hub/snapshots/{COMMIT}/deeper")).revision == ""
    assert (await asked(info, 7)).revision == ""
