"""Pins as operators write them."""

import pytest

from app.config.errors import ConfigError
from app.config.load import from_values
from app.config.pools import PoolConfig, VersionRange
from app.config.transfer import from_wire, to_wire
from app.core.fleet.engine import Engine


@pytest.mark.parametrize(
    ("version", "contained"),
    [
        ("0.30.0", True),
        ("0.32.0", True),
        ("0.32.1rc2", True),
        ("0.32.0+cpu", True),
        ("0.33.0", False),
        ("0.29.9", False),
        ("nightly", False),
    ],
)
def test_versions_in_a_range(version: str, contained: bool) -> None:
    assert VersionRange(">=0.30,<0.33").contains(version) is contained


def test_a_pool_is_a_pin() -> None:
    pin = PoolConfig(engine="vllm", engine_version="==0.32.*").pin()
    assert pin.problem(Engine("vllm", "0.32.0")) is None
    assert pin.problem(Engine("vllm", "0.31.0")) == "engine_version is 0.31.0, and ==0.32.* is pinned"


def test_pools_reach_serving_processes() -> None:
    config = from_values({"pools": {"m": {"engine_version": "<1", "spec_decode": False}}})
    assert from_wire(to_wire(config)) == config


@pytest.mark.parametrize(
    ("pools", "told"),
    [
        ({"m": {"engine_version": "new"}}, 'm.engine_version must be a range of versions such as ">=0.30,<0.33"'),
        ({"m": {"engine_versions": "<1"}}, "m.engine_versions is no setting of a pool"),
        ({"m": {"spec_decode": "no"}}, "m.spec_decode must be true or false"),
        ({"m": {"engine": ""}}, "m.engine must not be empty"),
        ({"m": 7}, "m must be a mapping of mappings"),
    ],
)
def test_what_is_wrong_with_a_pool_is_told_with_its_place(pools: object, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        from_values({"pools": pools})
    assert told in str(error.value)
