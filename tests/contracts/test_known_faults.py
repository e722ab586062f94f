"""The index of known faults says what is true: every fault is answered once, by tests that exist and are run."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from app.commands.test import LANES
from tests.contracts.known_faults import (
    BODIES_AND_ENDPOINTS,
    KNOWN_FAULTS,
    SECURITY,
    STREAMS_AND_HTTP,
    Covered,
    KnownFault,
)

ROOT = Path(__file__).resolve().parents[2]

IDS = {
    STREAMS_AND_HTTP: "F36 F37 F38 F40 F41 F43 F44 F45 F46 F47 F48 F49 F50 F51 F52 F53 F54 F55 F56",
    BODIES_AND_ENDPOINTS: "F59 F60 F61 F62 F63 F64 F65 F66 F67 F68 F69",
    SECURITY: "F70 F71 F72 F73 F74 F76 F77",
}

REPORT = re.compile(r"([\w.-]+/)?[\w.-]+#\d+|CVE-\d{4}-\d+")


@cache
def functions(path: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function of a file that pytest would collect, by what stands behind the file's path."""
    found = {}
    for node in ast.parse((ROOT / path).read_text()).body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        for function in inner:
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                found[prefix + function.name] = function
    return found


EXCUSES = frozenset({"skip", "skipif", "xfail", "importorskip"})


def shared(path: str, name: str) -> list[ast.AST]:
    """What else decides whether a test of a file is run: the file's own statements, and the marks of its class."""
    body = ast.parse((ROOT / path).read_text()).body
    loose = (node for node in body if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef))
    classes = (node for node in body if isinstance(node, ast.ClassDef) and node.name == name.partition("::")[0])
    return [*loose, *(mark for node in classes for mark in node.decorator_list)]


def words(tree: ast.AST) -> set[str]:
    """The names that code uses, in decorators and bodies alike: `pytest.skip(...)` in a body is a skip too."""
    nodes = list(ast.walk(tree))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)} | {
        node.id for node in nodes if isinstance(node, ast.Name)
    }


@pytest.mark.parametrize(
    "code",
    [
        "@pytest.mark.skipif(True, reason='x')\ndef test(): ...",
        "@pytest.mark.parametrize('a', [pytest.param(1, marks=pytest.mark.xfail)])\ndef test(a): ...",
        "def test():\n    if True:\n        pytest.skip('x')",
        "def test():\n    pytest.importorskip('x')",
    ],
)
def test_excuses_are_seen_wherever_they_stand(code: str) -> None:
    assert EXCUSES & words(ast.parse(code))


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import pytest\npytest.skip('x', allow_module_level=True)\ndef test_it(): ...", "test_it"),
        ("import pytest\n@pytest.mark.skip\nclass TestIt:\n    def test_it(self): ...", "TestIt::test_it"),
    ],
)
def test_excuses_of_a_whole_file_or_class_are_seen(tmp_path: Path, code: str, name: str) -> None:
    path = tmp_path / "test_x.py"
    path.write_text(code)
    assert any(EXCUSES & words(part) for part in shared(str(path), name))


def is_sentence(text: str) -> bool:
    return text[0].isupper() and text.endswith(".") and len(text.split()) > 5


def test_every_fault_is_there_once() -> None:
    for section, ids in IDS.items():
        assert [fault.id for fault in section] == ids.split()
    assert sum(map(len, IDS)) == len(KNOWN_FAULTS) == len({fault.id for fault in KNOWN_FAULTS})


@pytest.mark.parametrize("fault", KNOWN_FAULTS, ids=lambda fault: fault.id)
def test_what_an_entry_says(fault: KnownFault) -> None:
    assert REPORT.fullmatch(fault.reported_at)
    assert is_sentence(fault.symptom)
    answer = fault.answer
    if isinstance(answer, Covered):
        assert not answer.apart_from or is_sentence(answer.apart_from)
    else:
        assert is_sentence(answer.reason)


@pytest.mark.parametrize("fault", KNOWN_FAULTS, ids=lambda fault: fault.id)
def test_its_tests_exist_and_are_run(fault: KnownFault) -> None:
    tests = fault.answer.tests
    assert len(set(tests)) == len(tests)
    for test in tests:
        path, _, name = test.partition("::")
        function = functions(path).get(name)
        assert function is not None, f"{test} is not there"
        assert function.name.startswith("test_")
        excuses = [word for part in (function, *shared(path, name)) for word in EXCUSES & words(part)]
        assert not excuses, f"{test} may not be run, or may fail: {excuses}"
        assert "pytestmark" not in words(ast.parse((ROOT / path).read_text())), f"{path} marks all its tests"
    lanes = tuple(f"{folder.as_posix()}/" for folder in LANES.values())
    assert not all(test.startswith(lanes) for test in tests), "none of them is in the default run"
