"""One key set, four sources, one list of problems."""

import argparse
from collections.abc import Mapping
from pathlib import Path

import pytest

from app.config.errors import ConfigError
from app.config.flags import add_arguments
from app.config.load import from_values, load
from app.config.schema import POLICY_NAMES, Config
from app.config.settings import SETTINGS


def configure(*argv: str, environ: Mapping[str, str] | None = None, file: Path | None = None) -> Config:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return load(parser.parse_args(argv), environ or {}, file)


def problems(*argv: str, environ: Mapping[str, str] | None = None, file: Path | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        configure(*argv, environ=environ, file=file)
    told = [str(problem) for problem in caught.value.problems]
    assert all(line in str(caught.value) for line in told)
    return told


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "warmset.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_defaults() -> None:
    config = configure()
    assert (config.host, config.port, config.policy) == ("127.0.0.1", 30000, "power_of_two")
    assert (config.admin_host, config.admin_port) == ("127.0.0.1", 30001)
    assert (config.prometheus_host, config.prometheus_port) == ("127.0.0.1", 29000)
    assert config.worker_urls == ()
    assert config.api_key == ()
    assert config.model_alias == {}
    assert config.redis_url is None
    assert config.store_dir is None
    assert config.seed is None
    assert (config.request_timeout_secs, config.connect_timeout_secs, config.load_monitor_interval_secs) == (1800, 5, 1)
    assert (config.health_failure_threshold, config.health_success_threshold) == (3, 2)
    assert config.max_body_bytes == 33554432
    assert config.log_level == "info"
    assert config.replicas == 1


def test_precedence_flag_variable_file_default(write) -> None:
    file = write("port: 1\nadmin_port: 2\nprometheus_port: 3\n")
    environ = {"WARMSET_PORT": "11", "WARMSET_ADMIN_PORT": "12"}
    config = configure("--port", "21", environ=environ, file=file)
    assert (config.port, config.admin_port, config.prometheus_port, config.replicas) == (21, 12, 3, 1)


def test_a_list_of_a_stronger_source_replaces_the_weaker_one(write) -> None:
    file = write("worker_urls: [http://file:1]\n")
    assert configure(file=file).worker_urls == ("http://file:1",)
    config = configure(environ={"WARMSET_WORKER_URLS": "http://env:1, http://env:2"}, file=file)
    assert config.worker_urls == ("http://env:1", "http://env:2")
    config = configure("--worker-urls", "http://flag:1,http://flag:2", "--worker-urls", "http://flag:3", file=file)
    assert config.worker_urls == ("http://flag:1", "http://flag:2", "http://flag:3")
    # Space separated, as sglang-router and vllm-router take them.
    assert configure("--worker-urls", "http://a:1", "http://b:1", "--port", "5").worker_urls == (
        "http://a:1",
        "http://b:1",
    )


def test_the_file_is_named_by_flag_or_variable(write, tmp_path: Path) -> None:
    file = write("port: 1\n")
    assert configure("--config", str(file)).port == 1
    assert configure(environ={"WARMSET_CONFIG": str(file)}).port == 1
    assert problems("--config", str(tmp_path / "none.yaml")) == [
        f"{tmp_path}/none.yaml: cannot be read: No such file or directory"
    ]


@pytest.mark.parametrize(("text", "value"), [("true", True), ("YES", True), ("1", True), ("off", False), ("0", False)])
def test_bool_variables(text: str, value: bool) -> None:
    assert configure(environ={"WARMSET_INSECURE": text}).insecure is value


def test_bool_flags_win_both_ways(write) -> None:
    assert configure("--expose-routing-headers").expose_routing_headers is True
    assert (
        configure("--no-expose-routing-headers", file=write("expose_routing_headers: true\n")).expose_routing_headers
        is False
    )
    assert configure("--insecure", "--no-insecure").insecure is False


def test_model_alias_in_all_sources(write) -> None:
    expected = {"gpt-4": "llama", "small": "org/qwen=1"}
    assert configure("--model-alias", "gpt-4=llama", "--model-alias", "small=org/qwen=1").model_alias == expected
    assert configure(environ={"WARMSET_MODEL_ALIAS": "gpt-4=llama, small=org/qwen=1"}).model_alias == expected
    assert configure(file=write("model_alias:\n  gpt-4: llama\n  small: org/qwen=1\n")).model_alias == expected


def test_names_known_from_other_products() -> None:
    argv = [
        "--static-backends",
        "http://a:1,http://b:1",
        "--routing-logic",
        "roundrobin",
        "--metrics-port",
        "9",
        "--metrics-host",
        "::1",
    ]
    config = configure(*argv, "--load-monitor-interval", "2")
    assert config.worker_urls == ("http://a:1", "http://b:1")
    assert config.policy == "round_robin"
    assert (config.prometheus_host, config.prometheus_port, config.load_monitor_interval_secs) == ("::1", 9, 2)
    assert configure("--policy", "consistent_hashing").policy == "consistent_hash"
    assert configure("--routing-logic", "session").policy == "consistent_hash"


def test_every_problem_is_told_at_once_where_it_was_written(write) -> None:
    file = write("policy: best\nhost: 0.0.0.0\nprot: 1\n")
    environ = {"WARMSET_PORT": "http", "WARMSET_POLCY": "random", "WARMSET_ADMIN_PORT": "70000"}
    told = problems("--metrics-port", "-1", "--request-timeout-secs", "0", environ=environ, file=file)
    assert sorted(told) == sorted(
        [
            f"{file} line 1, policy: must be one of {', '.join(POLICY_NAMES)}, not 'best'",
            f"{file} line 2, host: 0.0.0.0 can be reached from other machines and there is no api_key; "
            "set api_key (WARMSET_API_KEY) or api_keys_file, bind 127.0.0.1, or allow it with --insecure",
            f"{file} line 3, prot: no such setting; did you mean port?",
            "WARMSET_PORT: must be a whole number, not 'http'",
            "WARMSET_POLCY: no such setting; did you mean WARMSET_POLICY?",
            "WARMSET_ADMIN_PORT: must be at most 65535, not 70000",
            "--metrics-port: must be at least 0, not -1",
            "--request-timeout-secs: must be more than 0, not 0.0",
        ]
    )


def test_a_wrong_value_does_not_hand_over_to_a_weaker_source(write) -> None:
    told = problems("--port", "x", environ={"WARMSET_PORT": "70000"}, file=write("port: 1\n"))
    assert told == ["--port: must be a whole number, not 'x'"]


@pytest.mark.parametrize(
    ("variable", "text", "what"),
    [
        ("WARMSET_SEED", "1.5", "must be a whole number, not '1.5'"),
        ("WARMSET_SEED", "-1", "must be at least 0, not -1"),
        ("WARMSET_PORT", "1_000", "must be a whole number, not '1_000'"),
        ("WARMSET_CONNECT_TIMEOUT_SECS", "5s", "must be a number, not '5s'"),
        ("WARMSET_CONNECT_TIMEOUT_SECS", "nan", "must be a number, not 'nan'"),
        ("WARMSET_CONNECT_TIMEOUT_SECS", "1e999", "must be a finite number, not inf"),
        ("WARMSET_INSECURE", "maybe", "must be true or false, not 'maybe'"),
        ("WARMSET_LOG_LEVEL", "loud", "must be 'debug', 'info', 'warning' or 'error', not 'loud'"),
        ("WARMSET_HEALTH_FAILURE_THRESHOLD", "0", "must be at least 1, not 0"),
        ("WARMSET_HEALTH_SUCCESS_THRESHOLD", "0", "must be at least 1, not 0"),
        ("WARMSET_MAX_HEAD_BYTES", "1023", "must be at least 1024, not 1023"),
        ("WARMSET_MAX_HEADERS", "15", "must be at least 16, not 15"),
        ("WARMSET_MAX_URL_BYTES", "255", "must be at least 256, not 255"),
        ("WARMSET_REQUEST_HEAD_TIMEOUT_SECS", "0.05", "must be at least 0.1, not 0.05"),
        ("WARMSET_BODY_PACE_WINDOW_SECS", "0.5", "must be at least 1.0, not 0.5"),
        ("WARMSET_MIN_BODY_BYTES_PER_SEC", "0", "must be at least 1, not 0"),
        ("WARMSET_MAX_JSON_KEYS", "15", "must be at least 16, not 15"),
        ("WARMSET_MAX_STRING_CHARS", "1023", "must be at least 1024, not 1023"),
        ("WARMSET_SSE_KEEPALIVE_SECS", "0.5", "must be 0 (off) or at least 1, not 0.5"),
        ("WARMSET_SSE_KEEPALIVE_SECS", "-1", "must be at least 0.0, not -1.0"),
        ("WARMSET_SSE_KEEPALIVE_SECS", "1e999", "must be a finite number, not inf"),
        ("WARMSET_MODEL_ALIAS", "llama", "must be alias=model, not 'llama'"),
        ("WARMSET_MODEL_ALIAS", "a=b,a=c", "'a' is there twice"),
        ("WARMSET_HOST", "127.0.0.1:80", "'127.0.0.1:80' must be one IP address or host name, without port"),
        ("WARMSET_STATIC_BACKENDS", "http://a", "no such setting; did you mean WARMSET_WORKER_URLS?"),
        ("WARMSET_ZZZ", "1", "no such setting; `warmset serve --help` lists them"),
    ],
)
def test_wrong_variables(variable: str, text: str, what: str) -> None:
    assert problems(environ={variable: text}) == [f"{variable}: {what}"]


def test_an_empty_variable_is_not_set(write) -> None:
    assert configure(environ={"WARMSET_PORT": "", "WARMSET_API_KEY": " "}, file=write("port: 7\n")).port == 7


def test_service_links_of_kubernetes_are_nobodys_settings() -> None:
    environ = {
        "WARMSET_PORT": "tcp://10.0.0.1:30000",
        "WARMSET_PORT_30000_TCP": "tcp://10.0.0.1:30000",
        "WARMSET_PORT_30000_TCP_ADDR": "10.0.0.1",
        "WARMSET_SERVICE_HOST": "10.0.0.1",
        "WARMSET_SERVICE_PORT": "30000",
        "WARMSET_SERVICE_PORT_HTTP": "30000",
        "WARMSET_ADMIN_PORT": "tcp://10.0.0.2:30001",
        "WARMSET_ADMIN_SERVICE_HOST": "10.0.0.2",
        "WARMSET_ADMIN_PORT_30001_TCP_PROTO": "tcp",
        "WARMSET_VENV": "/somewhere",
        "OTHER": "x",
    }
    assert configure(environ=environ) == configure()


def test_from_values() -> None:
    assert from_values({"port": 0, "worker_urls": ("http://a:1/",)}).worker_urls == ("http://a:1",)
    with pytest.raises(ConfigError, match=r"(?s)2 problems.*prot: no such setting.*admin_port: must be at most"):
        from_values({"prot": 0, "admin_port": 99999})


def test_every_key_is_offered_in_every_source_under_one_name() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    help_text = parser.format_help().replace("\n", " ")
    help_text = " ".join(help_text.split())
    assert list(SETTINGS) == list(Config.model_fields)
    for key, setting in SETTINGS.items():
        assert setting.flags[0] == "--" + key.replace("_", "-")
        assert setting.variable == "WARMSET_" + key.upper()
        assert setting.flags[0] in help_text
        assert f"env: {setting.variable})" in help_text
        assert setting.description
        assert setting.description in help_text
