"""Flags, environment and file -> one checked `Config`."""

import argparse
import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from app.config.document import read_document
from app.config.environment import variables
from app.config.errors import ConfigError, Problem, shown
from app.config.flags import FILE_VARIABLE, Given
from app.config.pools import PoolConfig
from app.config.rules import broken_rules
from app.config.schema import Config
from app.config.settings import SETTINGS, VARIABLE_PREFIX, Kind, Setting, from_document, from_texts


class Value(NamedTuple):
    """A value of the schema's type, and where the operator wrote it."""

    where: str
    value: Any


def load(args: argparse.Namespace, environ: Mapping[str, str], file: Path | None = None) -> Config:
    """The effective configuration: a flag wins over a variable, a variable over the file, the file over the default.

    args: parsed with `flags.add_arguments`. file: read in place of the one that --config or WARMSET_CONFIG names.
    Raises ConfigError with everything that is wrong.
    """
    problems: list[Problem] = []
    named = getattr(args, "config", None) or environ.get(FILE_VARIABLE)
    path = file if file is not None else Path(named) if named else None
    values: dict[str, Value] = {}
    if path is not None:
        values |= _from_file(path, problems)
    values |= _from_environment(environ, problems)
    values |= _from_flags(getattr(args, "settings", {}), problems)
    return _check(values, problems)


def from_values(values: Mapping[str, Any]) -> Config:
    """A checked configuration of these values (of the schema's types) and defaults. Raises ConfigError."""
    problems = [Problem(key, _unknown(key, SETTINGS)) for key in values if key not in SETTINGS]
    return _check({key: Value(key, value) for key, value in values.items() if key in SETTINGS}, problems)


def _from_file(path: Path, problems: list[Problem]) -> dict[str, Value]:
    entries, wrong = read_document(path)
    problems += wrong
    values: dict[str, Value] = {}
    for where, key, value in entries:
        setting = SETTINGS.get(key)
        if setting is None:
            problems.append(Problem(where, _unknown(key, SETTINGS)))
        elif value is None and not setting.optional:
            problems.append(Problem(where, "has no value; leave the key out to get the default"))
        else:
            try:
                values[key] = Value(where, from_document(setting, value))
            except ValueError as error:
                problems.append(Problem(where, str(error)))
    return values


def _from_environment(environ: Mapping[str, str], problems: list[Problem]) -> dict[str, Value]:
    by_variable = {setting.variable: setting for setting in SETTINGS.values()}
    values: dict[str, Value] = {}
    for name, text in variables(environ):
        setting = by_variable.get(name)
        if setting is None:
            key = name.removeprefix(VARIABLE_PREFIX).lower()
            problems.append(Problem(name, _unknown(key, SETTINGS, as_variable=True)))
        else:
            _put(values, setting, name, [text], problems)
    return values


def _from_flags(given: Mapping[str, list[Given]], problems: list[Problem]) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for key, flags in given.items():
        _put(values, SETTINGS[key], flags[-1].flag, [text for _, text in flags], problems)
    return values


def _put(values: dict[str, Value], setting: Setting, where: str, texts: list[str], problems: list[Problem]) -> None:
    try:
        values[setting.key] = Value(where, from_texts(setting, texts))
    except ValueError as error:
        problems.append(Problem(where, str(error)))
        values[setting.key] = Value(where, _WRONG)


_WRONG = object()
"""Stands for a value that is already told to be wrong: it still wins over those of weaker sources."""


def _check(values: Mapping[str, Value], problems: list[Problem]) -> Config:
    """Validate each key, then the rules between those that are right. Raises ConfigError."""
    good = {key: value.value for key, value in values.items() if value.value is not _WRONG}
    wrong = {key for key, value in values.items() if value.value is _WRONG}
    try:
        config = Config(**good)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            key = str(detail["loc"][0])
            wrong.add(key)
            problems.append(Problem(values[key].where, _told(SETTINGS[key], detail)))
        config = Config(**{key: value for key, value in good.items() if key not in wrong})
    for key, text in broken_rules(config, frozenset(wrong)):
        problems.append(Problem(values[key].where if key in values else key, text))
    if problems:
        raise ConfigError(problems)
    return config


def _told(setting: Setting, detail: ErrorDetails) -> str:
    """What pydantic found, in words that fit a flag as well as a file. A secret's value is left out."""
    context = detail.get("ctx", {})
    places = [place for place in detail["loc"][1:] if isinstance(place, int) and not isinstance(place, bool)]
    item = f"item {places[0] + 1} " if places and setting.kind is Kind.LIST else ""
    if setting.kind is Kind.TABLE and len(detail["loc"]) > 1:
        item = ".".join(shown(str(place))[1:-1] for place in detail["loc"][1:]) + " "
    value = "" if setting.secret else f", not {shown(detail['input'])}"
    match detail["type"]:
        case "value_error":
            return f"{item}{context['error']}"
        case "greater_than":
            return f"must be more than {context['gt']:g}{value}"
        case "greater_than_equal":
            return f"must be at least {context['ge']}{value}"
        case "less_than_equal":
            return f"must be at most {context['le']}{value}"
        case "finite_number":
            return f"must be a finite number{value}"
        case "literal_error":
            return f"must be {context['expected']}{value}"
        case "string_too_short":
            return f"{item}must not be empty"
        case "string_type":
            return f"{item}must be text{value}; write it in quotes"
        case (
            "tuple_type"
            | "model_type"
            | "dict_type"
            | "mapping_type"
            | "bool_type"
            | "int_type"
            | "float_type"
            | "int_from_float"
        ):
            return f"{item}must be {_wanted(setting, detail)}{value}"
        case "extra_forbidden":
            return f"{item}is no setting of a pool; there are {', '.join(PoolConfig.model_fields)}"
        case _:
            return f"{item}{detail['msg']}"


def _wanted(setting: Setting, detail: ErrorDetails) -> str:
    is_inside = setting.kind is Kind.TABLE and len(detail["loc"]) > 2
    return Kind.BOOL.value if is_inside and detail["type"] == "bool_type" else setting.kind.value


def _unknown(key: str, known: Iterable[str], *, as_variable: bool = False) -> str:
    """That there is no such key, and the name that may have been meant, be it by another product's name of it."""
    meant = {name: name for name in known}
    for setting in SETTINGS.values():
        meant |= {flag.removeprefix("--").replace("-", "_"): setting.key for flag in setting.flags}
    close = difflib.get_close_matches(key.lower().replace("-", "_"), meant, n=1, cutoff=0.6)
    if not close:
        return "no such setting; `warmset serve --help` lists them"
    name = meant[close[0]]
    return f"no such setting; did you mean {SETTINGS[name].variable if as_variable else name}?"
