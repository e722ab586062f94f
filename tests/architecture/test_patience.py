"""Tests do not bet on how fast a machine is: tests/patience.py says how they wait."""

import ast
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, settings

from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "tests").rglob("*.py"))

LEAST_S = 30
"""A limit that ends a test's own waiting is no shorter than this."""

LIMITS = {"timeout", "limit_s", "within_s"}
"""Keywords that are such limits wherever a test gives them."""

CLOCKS = {"monotonic", "perf_counter", "time"}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def last_name(node: ast.expr) -> str:
    """`wait_for` of `asyncio.wait_for`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def number(node: ast.expr) -> float | None:
    return float(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, int | float) else None


def limits(call: ast.Call) -> Iterator[float]:
    """Seconds that a call is given, where they are written as a number."""
    given = [keyword.value for keyword in call.keywords if keyword.arg in LIMITS]
    called = last_name(call.func)
    if called == "wait_for":
        given += call.args[1:2]
    elif called in ("timeout", "wait", "join"):
        given += call.args[:1]
    yield from (seconds for seconds in map(number, given) if seconds is not None)


def reads_a_clock(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Call) and last_name(each.func) in CLOCKS for each in ast.walk(node))


def hasty_limits(tree: ast.AST) -> Iterator[int]:
    """Lines. What is expected to run out of time may do so soon."""
    expected = {
        id(each)
        for block in ast.walk(tree)
        if isinstance(block, ast.With | ast.AsyncWith)
        and any("TimeoutError" in ast.unparse(item.context_expr) for item in block.items)
        for each in ast.walk(block)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and id(node) not in expected and any(s < LEAST_S for s in limits(node)):
            yield node.lineno


def ceilings(tree: ast.AST) -> Iterator[int]:
    """Lines that assert that something took less than something that no clock says."""
    asserted = (node.test for node in ast.walk(tree) if isinstance(node, ast.Assert))
    for compared in (each for test in asserted for each in ast.walk(test) if isinstance(each, ast.Compare)):
        sides = [compared.left, *compared.comparators]
        for left, operator, right in zip(sides[:-1], compared.ops, sides[1:], strict=True):
            less, more = (right, left) if isinstance(operator, ast.Gt | ast.GtE) else (left, right)
            is_order = isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE)
            if is_order and reads_a_clock(less) and not reads_a_clock(more):
                yield compared.lineno


@pytest.mark.parametrize("path", FILES, ids=name)
def test_no_test_says_how_long_a_thing_may_take(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert not [*hasty_limits(tree)], "lines with a limit that a slow machine could meet; see tests/patience.py"
    assert not [*ceilings(tree)], "lines that assert how fast something was; see tests/patience.py"


@pytest.mark.parametrize(
    ("text", "is_hasty", "is_ceiling"),
    [
        ("await asyncio.wait_for(x, 5)", True, False),
        ("async with asyncio.timeout(2):\n  pass", True, False),
        ("subprocess.run(x, timeout=20)", True, False),
        ("process.wait(3)", True, False),
        ("process.wait()", False, False),
        ("process.wait(PATIENCE_S)", False, False),
        ("with pytest.raises(TimeoutError):\n  await asyncio.wait_for(x, 0.02)", False, False),
        ("assert time.monotonic() - began < 1", False, True),
        ("assert 0.5 > time.monotonic() - began", False, True),
        ("assert 0 < time.monotonic() - began < 5", False, True),
        ("assert time.monotonic() - began > 2", False, False),
        ("while time.monotonic() < deadline:\n  pass", False, False),
    ],
)
def test_what_is_found(text: str, is_hasty: bool, is_ceiling: bool) -> None:
    tree = ast.parse("async def test():\n  " + text.replace("\n", "\n  "))
    assert bool([*hasty_limits(tree)]) == is_hasty
    assert bool([*ceilings(tree)]) == is_ceiling


def test_libraries_are_as_patient_as_we_are() -> None:
    with httpx.Client() as client:
        assert client.timeout == httpx.Timeout(PATIENCE_S)
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check
