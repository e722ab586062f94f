"""Arguments generated from the schema."""

import argparse

import pytest

from app.config.flags import Given, add_arguments


def parse(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="warmset serve")
    add_arguments(parser)
    return parser.parse_args(argv)


def test_what_is_given_is_kept_as_it_was_written() -> None:
    assert not hasattr(parse(), "settings")
    assert parse().print_config is False
    args = parse("--port", "x", "--metrics-port", "9", "--no-insecure", "--worker-urls", "a", "b", "--worker-urls", "c")
    assert args.settings == {
        "port": [Given("--port", "x")],
        "prometheus_port": [Given("--metrics-port", "9")],
        "insecure": [Given("--no-insecure", "false")],
        "worker_urls": [Given("--worker-urls", text) for text in "abc"],
    }


def test_a_shortened_flag_is_told_by_its_full_name() -> None:
    assert parse("--model-al", "a=b").settings == {"model_alias": [Given("--model-alias", "a=b")]}


def test_two_parsings_share_nothing() -> None:
    assert parse("--port", "1").settings == {"port": [Given("--port", "1")]}
    assert parse("--host", "h").settings == {"host": [Given("--host", "h")]}


@pytest.mark.parametrize("argv", [["--prot", "1"], ["--port"], ["stray"]])
def test_argparse_refuses_what_is_no_flag(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(*argv)
    assert caught.value.code == 2
    assert "usage: warmset serve" in capsys.readouterr().err
