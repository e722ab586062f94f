"""The policies: one file each, one line here. That line gives it `--policy`, metric labels and the contract tests."""

from app.core.routing.policies.consistent_hash import ConsistentHash
from app.core.routing.policies.least_load import LeastLoad
from app.core.routing.policies.power_of_two import PowerOfTwo
from app.core.routing.policies.random import Random
from app.core.routing.policies.round_robin import RoundRobin
from app.core.routing.policy import Policy

POLICIES: tuple[type[Policy], ...] = (PowerOfTwo, LeastLoad, RoundRobin, Random, ConsistentHash)

DEFAULT_POLICY = PowerOfTwo.name


def make_policy(name: str) -> Policy:
    """A fresh policy by name; KeyError for one that is not there (configuration is checked before)."""
    return {policy.name: policy for policy in POLICIES}[name]()
