"""The state machine over the router, for longer than the default run has time for."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from app.core.routing.policies import POLICIES
from tests.core.test_router_properties import Conservation

LONG = settings(max_examples=300, stateful_step_count=60, deadline=None)


@pytest.mark.parametrize("policy", [policy.name for policy in POLICIES])
def test_conservation(policy: str) -> None:
    class OfPolicy(Conservation):
        pass

    OfPolicy.policy = policy
    run_state_machine_as_test(OfPolicy, settings=LONG)
