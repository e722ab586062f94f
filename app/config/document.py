"""The configuration file: one YAML mapping of keys."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from app.config.errors import Problem, shown


class Entry(NamedTuple):
    """One key of the file. where: file and line, and the key."""

    where: str
    key: str
    value: Any


class _Loader(yaml.SafeLoader):
    """SafeLoader lets the last of two equal keys win in silence; this one remembers them."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.duplicates: list[tuple[int, str]] = []

    def note_duplicates(self, node: yaml.MappingNode) -> None:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    self.duplicates.append((key.start_mark.line + 1, key.value))
                seen.add(key.value)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        if isinstance(node, yaml.MappingNode):
            self.note_duplicates(node)
        return super().construct_mapping(node, deep)


def read_document(path: Path) -> tuple[list[Entry], list[Problem]]:
    """The entries of the file, and what is wrong with it as YAML. An empty file has no entries."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return [], [Problem(str(path), "is not UTF-8 text")]
    except OSError as error:
        return [], [Problem(str(path), f"cannot be read: {error.strerror or type(error).__name__}")]
    try:
        return _entries(path, text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{path} line {mark.line + 1}" if mark is not None else str(path)
        # The library quotes what it found, which may be a piece of a secret.
        reason = re.sub(r"(['\"]).*\1", "…", error.problem or "")
        return [], [Problem(where, f"is not YAML: {reason}")]
    except yaml.YAMLError:
        return [], [Problem(str(path), "is not YAML: it holds a character that YAML does not allow")]


def _entries(path: Path, text: str) -> tuple[list[Entry], list[Problem]]:
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        if root is None or (isinstance(root, yaml.ScalarNode) and root.tag == "tag:yaml.org,2002:null"):
            return [], []
        if not isinstance(root, yaml.MappingNode):
            kind = "a list" if isinstance(root, yaml.SequenceNode) else "a single value"
            return [], [Problem(str(path), f"must be a mapping of settings (`key: value` lines), but is {kind}")]
        loader.note_duplicates(root)
        entries, problems = _items(loader, path, root.value)
        problems += [
            Problem(f"{path} line {line}, {shown(key)[1:-1]}", "is there twice") for line, key in loader.duplicates
        ]
        return entries, problems
    finally:
        loader.dispose()


def _items(
    loader: _Loader, path: Path, pairs: Sequence[tuple[yaml.Node, yaml.Node]]
) -> tuple[list[Entry], list[Problem]]:
    entries: list[Entry] = []
    problems: list[Problem] = []
    for key_node, value_node in pairs:
        line = f"{path} line {key_node.start_mark.line + 1}"
        if not isinstance(key_node, yaml.ScalarNode):
            problems.append(Problem(line, "a key must be the name of a setting"))
            continue
        where = f"{line}, {shown(key_node.value)[1:-1]}"
        try:
            value = loader.construct_object(value_node, deep=True)
        except ValueError:
            # An unquoted text that only looks like a date, such as 2026-02-31.
            problems.append(Problem(where, "is not a value; write a text in quotes"))
            continue
        entries.append(Entry(where, str(key_node.value), value))
    return entries, problems
