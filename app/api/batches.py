"""Cuts a batch into parts, and joins the answers to them into the one that the whole would have got.

What stands in a part or in the joined answer is what the client or a worker wrote, byte for byte. New are only the list
that holds a part's inputs, the `index` of each output, the sums of `usage`, and in the header of an answer in `bytes`
the offsets.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import orjson

from app.api.spans import NotJson, entries, members
from app.core.fleet.exchange import Header

METADATA = b"metadata"
"""The header in which vLLM says how the octets of an answer in `bytes` are cut up."""


class Unfit(ValueError):
    """The answers to the parts are not what those to one batch are."""


class Part(NamedTuple):
    """body: a request by itself. size: outputs that it asks for."""

    body: bytes
    size: int


@dataclass(slots=True)
class PartAnswer:
    """What came of a part: `size` outputs were asked for."""

    size: int
    status: int
    headers: Sequence[Header]
    body: bytes


def cut(body: bytes, document: Mapping[str, Any], lists: Iterable[Sequence[str]], most: int) -> list[Part]:
    """The parts of a batch of more than `most` inputs, none larger and all alike within one; [] when there is no need.

    body: a valid JSON object that says what `document` says. lists: members that are cut in step, in the first row of
    which all are there; one that holds a single input is in every part.
    """
    names = next((row for row in lists if all(name in document for name in row)), ())
    batches = {name: document[name] for name in names if _size(document[name]) > 1}
    size = max(map(_size, batches.values()), default=0)
    if size <= most or any(_size(batch) != size for batch in batches.values()):
        return []
    count = -(-size // most)
    bounds = [size * number // count for number in range(count + 1)]
    spans = {member.start: member for member in members(body) if member.key in batches}
    places = {start: list(entries(body, start)) for start in spans}
    parts = []
    for first, end in pairwise(bounds):
        pieces: list[bytes] = []
        copied_to = 0
        for start, member in spans.items():
            inputs = places[start]
            pieces += [body[copied_to:start], b"[", body[inputs[first][0] : inputs[end - 1][1]], b"]"]
            copied_to = member.end
        parts.append(Part(b"".join((*pieces, body[copied_to:])), end - first))
    return parts


def _size(batch: object) -> int:
    """Inputs of what may be a batch. A list of numbers is one input as token ids."""
    return len(batch) if isinstance(batch, list) and batch and not isinstance(batch[0], int | float) else 1


def join(answers: Sequence[PartAnswer]) -> tuple[list[Header], bytes]:
    """Headers and body of the whole from those of its parts, in their order. Raises Unfit."""
    first = answers[0]
    kinds = {(_value(answer, b"content-type"), _value(answer, b"content-encoding")) for answer in answers}
    if len(kinds) > 1 or any(answer.status != first.status for answer in answers):
        raise Unfit("they are of different kinds")
    try:
        if (_value(first, b"content-type") or b"").startswith(b"application/json"):
            body = _join_json(answers)
            metadata = None
        else:
            body = b"".join(answer.body for answer in answers)
            metadata = _join_metadata(answers)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unfit(f"one is not of the form that is known: {error}") from None
    return [_joined(header, len(body), metadata) for header in first.headers], body


def _joined(header: Header, size: int, metadata: bytes | None) -> Header:
    name = header[0]
    if name == b"content-length":
        return name, b"%d" % size
    return (name, metadata) if name == METADATA and metadata is not None else header


def _value(answer: PartAnswer, wanted: bytes) -> bytes | None:
    return next((value for name, value in answer.headers if name == wanted), None)


def _join_json(answers: Sequence[PartAnswer]) -> bytes:
    """The first answer's object, with the entries of all in its `data` and the sum of all in its `usage`."""
    places = [{member.key: member for member in members(answer.body)} for answer in answers]
    usages = [
        orjson.loads(answer.body[found["usage"].start : found["usage"].end])
        for answer, found in zip(answers, places, strict=True)
    ]
    outputs: list[bytes] = []
    offset = 0
    for answer, found in zip(answers, places, strict=True):
        before = len(outputs)
        outputs += _entries_from(answer.body, found["data"].start, offset)
        if len(outputs) != before + answer.size:
            raise Unfit(f"one has {len(outputs) - before} outputs for {answer.size} inputs")
        offset += answer.size
    new = {"data": b"[" + b",".join(outputs) + b"]", "usage": orjson.dumps(_total(usages))}
    body, pieces, copied_to = answers[0].body, [], 0
    for key, start, end in places[0].values():
        if key in new:
            pieces += [body[copied_to:start], new[key]]
            copied_to = end
    return b"".join((*pieces, body[copied_to:]))


def _entries_from(body: bytes, start: int, offset: int) -> Iterator[bytes]:
    """The entries of the list at `start`, the `index` of each raised by `offset`."""
    for begin, end in entries(body, start):
        index = next((member for member in members(body, begin) if member.key == "index"), None)
        if index is None:
            raise NotJson("an output without index")
        number = int(body[index.start : index.end]) + offset
        yield b"%b%d%b" % (body[begin : index.start], number, body[index.end : end])


def _join_metadata(answers: Sequence[PartAnswer]) -> bytes | None:
    """The header that says what is where in the joined octets; None when, as in `bytes_only`, there is none."""
    headers = [_value(answer, METADATA) for answer in answers]
    if not any(headers):
        return None
    told = [json.loads(header or b"") for header in headers]
    outputs: list[dict[str, Any]] = []
    count = octets = 0
    for answer, document in zip(answers, told, strict=True):
        if len(document["data"]) != answer.size:
            raise Unfit(f"one has {len(document['data'])} outputs for {answer.size} inputs")
        for output in document["data"]:
            moved = {"index": output["index"] + count}
            moved |= {place: output[place] + octets for place in ("start", "end")}
            outputs.append(output | moved)
        count += answer.size
        octets += len(answer.body)
    whole = told[0] | {"data": outputs, "usage": _total([document["usage"] for document in told])}
    return json.dumps(whole).encode("ascii")


def _total(usages: Sequence[Any]) -> Any:
    """The sum of numbers at every level; of what is none (a detail that is null) the first that there is."""
    there = [usage for usage in usages if usage is not None]
    first = there[0] if there else None
    if isinstance(first, dict):
        return {key: _total([usage.get(key) for usage in there]) for key in first}
    if isinstance(first, int | float) and not isinstance(first, bool):
        return sum(there)
    return first
