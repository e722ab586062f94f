"""Lists of models and versions, as workers write them and as they should not."""

from pathlib import Path

import orjson
import pytest

from app.signals.descriptions import Malformed, read_models, read_version, same_models

DATA = Path(__file__).parent / "data"


def test_entries_are_the_worker_s_own() -> None:
    page = (DATA / "vllm-0.32.0-models.json").read_bytes()
    models = read_models(page)
    assert list(models) == ["tiny"]
    assert models["tiny"] in page


def test_adapters_are_models_in_the_worker_s_order() -> None:
    assert list(read_models((DATA / "vllm-0.32.0-models-lora.json").read_bytes())) == ["tiny", "ad1"]


def test_two_readings_of_the_same_are_the_same() -> None:
    page = orjson.loads((DATA / "vllm-0.32.0-models.json").read_bytes())
    first = read_models(orjson.dumps(page))
    page["data"][0]["created"] += 10
    page["data"][0]["permission"][0]["id"] = "modelperm-other"
    assert same_models(first, read_models(orjson.dumps(page)))
    page["data"][0]["max_model_len"] = 4096
    assert not same_models(first, read_models(orjson.dumps(page)))
    assert not same_models(first, {})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b"null",
        b"[]",
        b'{"data":{}}',
        b'{"data":[7]}',
        b'{"data":[{}]}',
        b'{"data":[{"id":""}]}',
        b'{"data":[{"id":7}]}',
        b'{"data":[{"id":"a\\nb"}]}',
        orjson.dumps({"data": [{"id": "x" * 513}]}),
        orjson.dumps({"data": [{"id": str(number)} for number in range(4097)]}),
    ],
)
def test_a_malformed_list_says_nothing(body: bytes) -> None:
    with pytest.raises(Malformed):
        read_models(body)


def test_a_version() -> None:
    assert read_version((DATA / "vllm-0.32.0-version.json").read_bytes()) == "0.32.0"


@pytest.mark.parametrize("body", [b"", b"7", b"{}", b'{"version":7}', b'{"version":""}', b'{"version":"1\\n2"}'])
def test_a_malformed_version_says_nothing(body: bytes) -> None:
    with pytest.raises(Malformed):
        read_version(body)
