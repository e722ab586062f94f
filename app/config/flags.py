"""Command-line arguments, generated from the schema.

Values stay texts here: what is wrong with them is told by `load`, together with everything else that is wrong.
"""

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple

from app.config.settings import SETTINGS, Kind, Setting

FILE_VARIABLE = "WARMSET_CONFIG"


class Given(NamedTuple):
    """A flag as it was written, and its text."""

    flag: str
    text: str


class _Give(argparse.Action):
    """Collects what was given under `settings`: key -> list of Given, in the order of the command line."""

    def __init__(self, option_strings: Sequence[str], dest: str, setting: Setting, **kwargs: Any) -> None:
        super().__init__(option_strings, dest, **kwargs)
        self._setting = setting

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        # The flag's full name, also when the operator wrote the beginning of it.
        flag = next(
            (name for name in self.option_strings if name.startswith(option_string or "")), self.option_strings[0]
        )
        if self.nargs == 0:
            texts = ["false" if flag.startswith("--no-") else "true"]
        else:
            texts = values if isinstance(values, list) else [values]
        given = dict(getattr(namespace, "settings", {}))
        given[self._setting.key] = [*given.get(self._setting.key, []), *(Given(flag, text) for text in texts)]
        namespace.settings = given


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add one flag per key, under headings, and `--config` and `--print-config`."""
    parser.add_argument("--config", metavar="FILE", help=f"YAML file with these settings (env: {FILE_VARIABLE})")
    parser.add_argument(
        "--print-config", action="store_true", help="print the effective settings as YAML, secrets masked, and end"
    )
    groups: dict[str, argparse._ArgumentGroup] = {}
    for setting in SETTINGS.values():
        heading = setting.offer.heading
        group = groups.get(heading) or groups.setdefault(heading, parser.add_argument_group(heading))
        options: dict[str, Any] = {"metavar": setting.offer.metavar or _metavar(setting)}
        flags = setting.flags
        if setting.kind is Kind.BOOL:
            options = {"nargs": 0}
            flags = (*flags, *(f"--no-{flag.removeprefix('--')}" for flag in flags))
        elif setting.kind in (Kind.LIST, Kind.MAP):
            options["nargs"] = "+"
        group.add_argument(
            *flags,
            action=_Give,
            dest="settings",
            setting=setting,
            default=argparse.SUPPRESS,
            help=_help(setting),
            **options,
        )


def _metavar(setting: Setting) -> str:
    if setting.secret:
        return "KEY"
    return {Kind.INT: "N", Kind.FLOAT: "SECONDS"}.get(setting.kind, setting.key.rpartition("_")[2].upper())


def _help(setting: Setting) -> str:
    text = setting.description
    if setting.kind in (Kind.LIST, Kind.MAP):
        text += "; several: repeat, or separate with commas"
    return f"{text} (default: {_default(setting)}; env: {setting.variable})".replace("%", "%%")


def _default(setting: Setting) -> str:
    if setting.default is None or setting.default == () or setting.default == {}:
        return "none"
    if isinstance(setting.default, bool):
        return "yes" if setting.default else "no"
    return f"{setting.default:g}" if isinstance(setting.default, float) else str(setting.default)
