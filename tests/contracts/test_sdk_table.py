"""The README's table of SDKs is what their lane prints when all of it passed."""

from pathlib import Path

from tests.clients.table import render
from tests.clients.test_sdks import CASES, PROGRAMS

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_readme_shows_it() -> None:
    assert render({f"[{sdk}-{name}]": True for sdk, name in CASES}) in README.read_text(encoding="utf-8")


def test_each_sdk_is_tried_with_what_matters() -> None:
    for sdk in PROGRAMS:
        tried = {name for each, name in CASES if each == sdk}
        assert tried >= {"chat_whole", "chat_stream", "embeddings", "unknown_model", "bad_parameter"}, sdk


def test_what_failed_is_shown() -> None:
    assert "FAILED" in render({"[openai (Python)-chat_whole]": False})
