"""The records of tests/sim/data/vllm/frontend are what the pinned release answers."""

import base64
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sim.worker.shapes import RECORDED, Answer, differences, load
from tests.vllm import engine, once

RECORDER = Path(__file__).with_name("frontend.py")
KINDS = ("generate", "embed", "classify", "score")
LIMIT_S = 900


@pytest.mark.timeout(LIMIT_S)
def test_records_are_of_this_release(say: Callable[[str], None], tmp_path: Path) -> None:
    prepared = engine.prepare(once.cache_folder(), say)
    say("recording what vLLM's HTTP side answers (about a minute)")
    command = [prepared.python, RECORDER, prepared.models, prepared.embedder, tmp_path]
    done = subprocess.run(command, env=once.environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    kept, fresh = (json.loads((folder / "routes.json").read_text()) for folder in (RECORDED, tmp_path))
    assert kept == fresh
    for kind in KINDS:
        for record, other in zip(load(RECORDED, kind), load(tmp_path, kind), strict=True):
            assert (record["name"], record["body"]) == (other["name"], other["body"])
            assert not differences(record, as_answer(other), simulated=False), record["name"]


def as_answer(record: dict[str, Any]) -> Answer:
    body = base64.b64decode(record["base64"]) if "base64" in record else record["text"].encode()
    return Answer(record["status"], [(name, value) for name, value in record["answer_headers"]], body)
