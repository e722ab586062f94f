"""Prompts as vLLM takes them: a text, a list of texts, token ids, or a list of token id lists."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.sim.worker.fields import Complaint, Fields
from app.sim.worker.tokens import from_ids, text_of, tokenize

Given = str | list[str] | list[int] | list[list[int]]


@dataclass(frozen=True, slots=True)
class Prompt:
    """`counted`: the client sent token ids, so that their number is known before anything is read."""

    tokens: Sequence[bytes]
    counted: bool = False

    @property
    def text(self) -> str:
        """Token ids count as the text they spell."""
        return text_of(self.tokens)

    def cut(self, length: int, *, left: bool = False) -> "Prompt":
        """At most `length` tokens: the first ones, or the last when cut on the left."""
        surplus = max(0, len(self.tokens) - length)
        return Prompt(self.tokens[surplus:] if left else self.tokens[: len(self.tokens) - surplus], self.counted)


def read_given(fields: Fields, name: str, *, least: int | None = None) -> Given | None:
    """The field in the first form that it fits; None, with the complaints of all forms, when there is none.

    `least` is the lowest token id that passes. Digits in strings are token ids only beside numbers, as for pydantic.
    """
    value = fields.get(name)
    if isinstance(value, str) or (isinstance(value, list) and all(isinstance(item, str) for item in value)):
        return value
    complaints: list[Complaint] = []
    for read in (_ids, _id_lists, _text, _texts):
        trial = Fields(fields.body)
        given = read(trial, name, value, least)
        if not trial.complaints:
            return given
        complaints += trial.complaints
    fields.complaints += complaints
    return None


def prompts_of(given: Given) -> list[Prompt]:
    """400 for a token id that is not in the vocabulary."""
    if isinstance(given, str):
        return [Prompt(tokenize(given))]
    ids = [item for item in given if isinstance(item, int)]
    if ids:
        return [Prompt(from_ids(ids), counted=True)]
    return [
        Prompt(tokenize(item)) if isinstance(item, str) else Prompt(from_ids(item), counted=True)
        for item in given
        if not isinstance(item, int)
    ]


def _ids(fields: Fields, place: str, value: object, least: int | None) -> list[int]:
    if not isinstance(value, list):
        fields.complain_type("list", "list", place, value)
        return []
    found = [fields.as_integer(f"{place}.{at}", item, least=least) for at, item in enumerate(value)]
    return [number for number in found if number is not None]


def _id_lists(fields: Fields, place: str, value: object, least: int | None) -> list[list[int]]:
    if not isinstance(value, list):
        fields.complain_type("list", "list", place, value)
        return []
    return [_ids(fields, f"{place}.{at}", item, least) for at, item in enumerate(value)]


def _text(fields: Fields, place: str, value: object, least: int | None) -> str:
    if not isinstance(value, str):
        fields.complain_type("string", "string", place, value)
    return str(value)


def _texts(fields: Fields, place: str, value: object, least: int | None) -> list[str]:
    if not isinstance(value, list):
        fields.complain_type("list", "list", place, value)
        return []
    return [_text(fields, f"{place}.{at}", item, least) for at, item in enumerate(value)]
