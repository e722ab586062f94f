"""Rules between keys, and checks of addresses."""

import pytest

from app.config.addresses import is_loopback, overlap, worker_url
from app.config.errors import ConfigError
from app.config.load import from_values

OPEN = "can be reached from other machines"


@pytest.mark.parametrize(
    ("values", "broken"),
    [
        ({"host": "0.0.0.0"}, OPEN),
        ({"host": "::"}, OPEN),
        ({"host": "gateway"}, OPEN),
        ({"host": "0.0.0.0", "api_key": ("k",)}, None),
        ({"host": "0.0.0.0", "insecure": True}, None),
        ({"host": "127.9.9.9"}, None),
        ({"host": "localhost"}, None),
        ({"admin_host": "10.0.0.1"}, OPEN),
        ({"admin_host": "10.0.0.1", "api_key": ("k",)}, OPEN),
        ({"admin_host": "10.0.0.1", "admin_api_key": "k"}, None),
        ({"admin_host": "10.0.0.1", "insecure": True}, None),
        ({"port": 30001}, "admin_port: 30001 is taken by port"),
        ({"prometheus_port": 30000, "prometheus_host": "0.0.0.0"}, "prometheus_port: 30000 is taken by port"),
        ({"prometheus_port": 30001}, "prometheus_port: 30001 is taken by admin_port"),
        ({"port": 1, "prometheus_port": 1, "host": "127.0.0.1", "prometheus_host": "127.0.0.2"}, None),
        ({"port": 0, "admin_port": 0, "prometheus_port": 0}, None),
        ({"replicas": 2}, "replicas: 2 replicas need a store that they share"),
        ({"replicas": 2, "redis_url": "redis://r:6379"}, None),
        (
            {"store_dir": "/data", "redis_url": "redis://r:6379"},
            "store_dir: belongs to a store that the gateway starts",
        ),
        ({"store_dir": "/data"}, None),
    ],
)
def test_rules(values: dict[str, object], broken: str | None) -> None:
    if broken is None:
        from_values(values)
    else:
        with pytest.raises(ConfigError) as caught:
            from_values(values)
        assert len(caught.value.problems) == 1
        assert broken in str(caught.value)


def test_a_rule_is_silent_about_keys_that_are_wrong_by_themselves() -> None:
    with pytest.raises(ConfigError) as caught:
        from_values({"replicas": 2, "redis_url": "http://r", "host": "0.0.0.0", "api_key": ("a b",)})
    assert sorted(problem.where for problem in caught.value.problems) == ["api_key", "redis_url"]


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://gpu-1:8000", "http://gpu-1:8000"),
        ("HTTP://GPU-1:8000/", "http://gpu-1:8000"),
        ("https://gpu/Prefix/", "https://gpu:443/Prefix"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_worker_urls_are_normalised(text: str, url: str) -> None:
    assert worker_url(text) == url


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("gpu-1:8000", "must begin with http:// or https://"),
        ("ftp://gpu", "must begin with http:// or https://"),
        ("http://", "has no host"),
        ("http://:8000", "has no host"),
        ("http://a:0", "names port 0"),
        ("http://a:99999", "its port is not one"),
        ("http://a:b", "its port is not one"),
        ("http://a?x=1", "must not have a query or (a )?fragment"),
        ("http://a/#x", "must not have a query or (a )?fragment"),
        ("http://a/?", "must not have a query or (a )?fragment"),
        ("http://[::1", "is not a URL"),
        ("http://a b", "is not a URL"),
        ("http://a\n", "is not a URL"),
        ("", "is not a URL"),
        ("http://me:sesame@a", "must not carry a user or password"),
    ],
)
def test_worker_urls_that_are_refused(text: str, rule: str) -> None:
    with pytest.raises(ValueError, match=rule) as caught:
        worker_url(text)
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    "twice", [("http://a", "http://A/"), ("http://a", "http://a:80"), ("https://a:443", "https://a")]
)
def test_a_worker_named_twice_is_refused(twice: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match="is there twice"):
        from_values({"worker_urls": twice})
    from_values({"worker_urls": ("http://a", "https://a", "http://a:81")})


@pytest.mark.parametrize(
    ("allow", "urls", "told"),
    [
        ((), ("http://169.254.169.254", "http://gpu-1/path"), None),
        (("gpu-*:8000",), ("http://gpu-1:8000",), None),
        (("10.0.0.0/8",), ("http://gpu-1:8000",), None),  # which only its address can tell
        (("gpu-*:8000",), ("http://gpu-1:8000", "http://gpu-1:80", "http://cpu-1:8000"), "allowed are gpu-*:8000"),
        (("10.0.0.0/8",), ("http://127.0.0.1:8000",), "allowed are 10.0.0.0/8"),
    ],
)
def test_workers_of_the_configuration_are_within_its_own_list(
    allow: tuple[str, ...], urls: tuple[str, ...], told: str | None
) -> None:
    values = {"worker_url_allow": allow, "worker_urls": urls}
    if told is None:
        from_values(values)
        return
    with pytest.raises(ConfigError) as caught:
        from_values(values)
    (problem,) = caught.value.problems
    assert problem.where == "worker_urls"
    assert told in problem.what
    assert problem.what.count("allowed are") == len(urls) - ("http://gpu-1:8000" in urls)


def test_every_pattern_that_is_none_is_told_with_what_else_is_wrong() -> None:
    with pytest.raises(ConfigError) as caught:
        from_values({"worker_url_allow": ("10.0.0.1/8", "a", "b/c"), "port": -1, "worker_urls": ("http://x",)})
    problems = {problem.where: problem.what for problem in caught.value.problems}
    assert sorted(problems) == ["port", "worker_url_allow"]
    assert "10.0.0.1/8" in problems["worker_url_allow"]
    assert "'b/c'" in problems["worker_url_allow"]


@pytest.mark.parametrize(
    ("aliases", "rule"),
    [
        ({"a": "a"}, "'a' is an alias of itself"),
        ({"a": "b", "b": "a"}, "'a' and 'b' are aliases of each other"),
        ({"a": "b", "b": "c", "c": "a"}, "'a' points at 'b', which is an alias too"),
        ({"a": "b", "b": "c"}, "'a' points at 'b', which is an alias too"),
        ({"": "b"}, "must not be empty"),
    ],
)
def test_aliases_resolve_in_one_step(aliases: dict[str, str], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        from_values({"model_alias": aliases})


def test_loopback_and_overlap() -> None:
    assert is_loopback("::1")
    assert is_loopback("::ffff:127.0.0.1")
    assert not is_loopback("::ffff:10.0.0.1")
    assert overlap("localhost", "127.0.0.1")
    assert overlap("0.0.0.0", "10.0.0.1")
    assert overlap("10.0.0.1", "::")
    assert not overlap("10.0.0.1", "127.0.0.1")
    assert not overlap("localhost", "10.0.0.1")


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("http://r", "must begin with redis://"),
        ("redis://:sesame@", "has no host"),
        ("unix://", "has no socket path"),
        ("redis://a b", "is not a URL"),
    ],
)
def test_store_urls_that_are_refused(url: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule) as caught:
        from_values({"redis_url": url})
    assert "sesame" not in str(caught.value)
