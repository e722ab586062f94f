"""Laws of the house that no import contract can see."""

import ast
import logging
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "app").rglob("*.py"))
CORE = sorted((ROOT / "app" / "core").rglob("*.py"))

HARD_LIMIT_LINES = 500


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_file_can_be_read_in_one_go(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= HARD_LIMIT_LINES


@pytest.mark.parametrize("path", FILES, ids=name)
def test_every_file_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), "no module docstring"


def is_set(node: ast.expr) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("set", "frozenset")


@pytest.mark.parametrize("path", CORE, ids=name)
def test_core_is_the_same_in_every_process(path: Path) -> None:
    """Builtin hashes and the order of sets differ between processes, so replicas and replays would disagree."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "hash", f"line {node.lineno}"
        if isinstance(node, ast.For | ast.comprehension):
            assert not is_set(node.iter), f"iterates over a set near {ast.unparse(node.iter)}"


RESERVED = set(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


@pytest.mark.parametrize("path", FILES, ids=name)
def test_log_fields_are_not_the_records_own(path: Path) -> None:
    """logging raises KeyError for them, which ended a supervisor in the very moment that it was needed."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.keyword) and node.arg == "extra" and isinstance(node.value, ast.Dict):
            fields = {key.value for key in node.value.keys if isinstance(key, ast.Constant)}
            assert not fields & RESERVED, f"line {node.value.lineno}"


@pytest.mark.parametrize("path", FILES, ids=name)
def test_middleware_is_pure_asgi(path: Path) -> None:
    """Starlette's own kind runs the application in a task of its own: it holds streams back, and hides who left."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom | ast.Import):
            assert "BaseHTTPMiddleware" not in ast.unparse(node), f"line {node.lineno}"
        if isinstance(node, ast.Attribute):
            assert node.attr not in ("BaseHTTPMiddleware", "middleware"), f"line {node.lineno}"
