"""`--print-config`, and secrets that stay secret."""

from pathlib import Path

import pytest
import yaml

from app.config.errors import MASK, ConfigError
from app.config.load import from_values
from app.config.schema import Config
from app.config.show import render
from tests.config.test_load import configure, problems

SECRETS = {
    "api_key": ("sesame-1", "sesame-2"),
    "admin_api_key": "sesame-3",
    "worker_api_key": "sesame-4",
    "redis_url": "rediss://gw:sesame-5@store:6379/1?password=sesame-6",
}


def again(config: Config, tmp_path: Path) -> Config:
    path = tmp_path / "printed.yaml"
    path.write_text(render(config), encoding="utf-8")
    return configure(file=path)


def test_what_is_printed_loads_to_the_same(tmp_path: Path) -> None:
    for config in (
        from_values({}),
        from_values(
            {
                "worker_urls": ("http://a:1", "http://[::1]:2/x"),
                "model_alias": {"yes": "null", "1": "2026-01-01", "ü: #": "- x"},
                "policy": "random",
                "seed": 7,
                "host": "::1",
                "request_timeout_secs": 0.25,
                "redis_url": "unix:///run/store.sock",
            }
        ),
    ):
        assert again(config, tmp_path) == config


def test_secrets_are_masked_and_a_mask_does_not_pass_for_a_secret(tmp_path: Path) -> None:
    config = from_values(SECRETS)
    text = render(config)
    assert "sesame" not in text
    assert "sesame" not in repr(config)
    assert "sesame" not in str(config)
    printed = yaml.safe_load(text)
    assert printed["api_key"] == [MASK, MASK]
    assert printed["admin_api_key"] == MASK
    assert printed["redis_url"] == f"rediss://gw:{MASK}@store:6379/1?password={MASK}"
    with pytest.raises(ConfigError) as caught:
        again(config, tmp_path)
    assert len(caught.value.problems) == 5
    assert all("the mask" in problem.what for problem in caught.value.problems)


def test_every_key_is_printed_once_under_headings() -> None:
    text = render(from_values({}))
    assert list(yaml.safe_load(text)) == list(Config.model_fields)
    assert text.startswith("# workers\n")
    assert "\n\n# admin listener\nadmin_host: 127.0.0.1\n" in text


@pytest.mark.parametrize("key", ["api_key", "admin_api_key", "worker_api_key"])
@pytest.mark.parametrize("text", ["se same", "sésame", "sesame\n", "sesame\x7f"])
def test_a_secret_that_no_header_can_carry_is_refused_unseen(key: str, text: str) -> None:
    value = (text,) if key == "api_key" else text
    with pytest.raises(ConfigError, match="must be printable ASCII") as caught:
        from_values({key: value})
    assert "same" not in str(caught.value)
    assert "same" not in repr(caught.value)


def test_no_error_shows_a_secret(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text("worker_urls: ['http://me:sesame@gpu']\nredis_url: 'http://me:sesame@r'\nadmin_api_key: [sesame]\n")
    told = problems("--api-key", "sesame sesame", environ={"WARMSET_WORKER_API_KEY": "sésame"}, file=file)
    assert len(told) == 5
    assert "same" not in " ".join(told)
