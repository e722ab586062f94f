"""Key sets over the channel, and what a request cost."""

import json

import pytest

from app.core.fleet.reasons import Outcome
from app.core.fleet.record import RequestRecord
from app.core.fleet.tenant import Grant, KeySet, Limits, Plane
from app.core.tenants.charge import tokens_of
from app.core.tenants.records import keys_from_record, keys_to_record


def test_a_key_set_is_the_same_on_the_other_side() -> None:
    keys = KeySet(
        (
            Grant("a", "t", b"\x00" * 32),
            Grant("b", "u", b"\xff" * 32, ("m*",), (Plane.ADMIN, Plane.DATA), 1.5, 2.5, Limits(1.0, 2.0, 3, 4)),
        ),
        {"t": Limits(concurrency=2)},
    )
    assert keys_from_record(json.loads(json.dumps(keys_to_record(keys)))) == keys


@pytest.mark.parametrize(
    ("prompt", "completion", "events", "outcome", "tokens"),
    [
        (10, 5, 9, Outcome.SERVED, 15),
        (10, None, 0, Outcome.SERVED, 10),
        (None, 5, 0, Outcome.SERVED, 5),
        (None, None, 7, Outcome.SERVED, 107),
        (None, None, 7, Outcome.CLIENT_GONE, 107),
        (None, None, 0, Outcome.CLIENT_GONE, 100),
        (None, None, 0, Outcome.SERVED, 0),
        (None, None, 0, Outcome.FAILED, 0),
    ],
)
def test_tokens(prompt: int | None, completion: int | None, events: int, outcome: Outcome, tokens: int) -> None:
    record = RequestRecord("r", "POST", "/v1/completions", 0.0, outcome=outcome, events=events, bytes_in=400)
    record.prompt_tokens, record.completion_tokens = prompt, completion
    assert tokens_of(record) == tokens
