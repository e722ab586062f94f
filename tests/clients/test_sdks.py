"""Real SDKs, unchanged, straight on a worker and through the gateway: each case comes out alike.

What fails on the worker too is the engine or the test; what fails through the gateway alone is ours.
"""

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.clients.sdks import NODE, PYTHON, Sdks
from tests.vllm.once import environment
from tests.vllm.process import ServerProcess
from tests.vllm.workers import Workers

PROGRAM_LIMIT_S = 300
PROGRAMS = {
    "openai (Python)": PYTHON / "openai_sdk.py",
    "langchain-openai": PYTHON / "langchain_openai_sdk.py",
    "llama-index OpenAI-like": PYTHON / "llama_index_sdk.py",
    "litellm": PYTHON / "litellm_sdk.py",
    "openai (Node)": NODE / "openai_sdk.mjs",
    "Vercel AI SDK": NODE / "vercel_ai.mjs",
}
CLOSE = {"rel": 1e-4, "abs": 1e-5}
"""An engine's numbers differ in their last bits when it reads the same texts in other company."""


def cases_of(program: Path) -> list[str]:
    """Names of the cases, as they stand in a program."""
    text = program.read_text(encoding="utf-8")
    pattern = r"^@case\ndef (\w+)" if program.suffix == ".py" else r"^  async (\w+)\(\) \{"
    return re.findall(pattern, text, re.MULTILINE)


CASES = [(sdk, name) for sdk, program in PROGRAMS.items() for name in cases_of(program)]


class Ran:
    """What each program told, each run once on either side."""

    def __init__(self, sdks: Sdks, workers: Workers, gateway: ServerProcess) -> None:
        self._sdks = sdks
        self._urls = {
            "direct": [f"{workers.chat[0].url}/v1", f"{workers.embedding.url}/v1"],
            "gateway": [f"{gateway.url}/v1"] * 2,
        }
        self.told = cache(self._told)

    def _told(self, sdk: str, side: str) -> dict[str, Any]:
        program = PROGRAMS[sdk]
        command = [self._sdks.python, program] if program.suffix == ".py" else ["node", self._sdks.node / program.name]
        done = subprocess.run(
            [*command, *self._urls[side]],
            # A stray setting or credential of whoever runs the tests is not for these programs; nor is the network.
            env={name: value for name, value in environment().items() if not name.startswith(("OPENAI_", "LITELLM_"))}
            | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
            capture_output=True,
            text=True,
            timeout=PROGRAM_LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return told


@pytest.fixture(scope="session")
def ran(sdks: Sdks, live_workers: Workers, live_gateway: ServerProcess) -> Ran:
    return Ran(sdks, live_workers, live_gateway)


@pytest.mark.parametrize(("sdk", "name"), CASES)
def test_case(ran: Ran, sdk: str, name: str) -> None:
    direct, through = (ran.told(sdk, side)[name] for side in ("direct", "gateway"))
    assert "failed" not in direct, direct["failed"]
    assert "failed" not in through, through["failed"]
    if name.startswith("embeddings"):
        assert through["result"] == [pytest.approx(row, **CLOSE) for row in direct["result"]]
    else:
        assert through["result"] == direct["result"]


def test_no_case_is_left_out(ran: Ran) -> None:
    for sdk, program in PROGRAMS.items():
        assert sorted(ran.told(sdk, "gateway")) == sorted(cases_of(program)), sdk
        assert len(cases_of(program)) >= 8
