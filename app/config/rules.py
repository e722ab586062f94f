"""Rules between keys. Each is told together with what is wrong inside of single keys."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from app.config.addresses import is_loopback, overlap
from app.config.errors import ConfigError
from app.config.keys_file import read_hash_keys, read_keys_file
from app.config.schema import Config
from app.core.fleet.allow import DestinationRules, parse_allow_list


class Rule(NamedTuple):
    """keys: what the rule reads; the first is the one that a broken rule is told about.

    broken: what is wrong and what is allowed, or None. Not asked when one of its keys is already wrong by itself.
    """

    keys: tuple[str, ...]
    broken: Callable[[Config], str | None]


def _data_without_key(config: Config) -> str | None:
    if is_loopback(config.host) or config.api_key or config.api_keys_file or config.insecure:
        return None
    return (
        f"{config.host} can be reached from other machines and there is no api_key; "
        "set api_key (WARMSET_API_KEY) or api_keys_file, bind 127.0.0.1, or allow it with --insecure"
    )


def _admin_without_key(config: Config) -> str | None:
    if is_loopback(config.admin_host) or config.admin_api_key or config.api_keys_file or config.insecure:
        return None
    return (
        f"{config.admin_host} can be reached from other machines and there is no admin_api_key; "
        "set admin_api_key (WARMSET_ADMIN_API_KEY), bind 127.0.0.1, or allow it with --insecure"
    )


def _keys_file(config: Config) -> str | None:
    return _wrong_in(read_keys_file, config.api_keys_file)


def _hash_key_file(config: Config) -> str | None:
    if config.tenant_hash_key_file is not None and config.tenant_hash_key:
        return "tenant_hash_key is set too; set one of them"
    return _wrong_in(read_hash_keys, config.tenant_hash_key_file)


def _wrong_in(read: Callable[[Path], object], file: str | None) -> str | None:
    """Everything that is wrong with a file that the configuration names."""
    if file is not None:
        try:
            read(Path(file))
        except ConfigError as error:
            return "; ".join(map(str, error.problems))
    return None


def _clash(first: str, second: str) -> Rule:
    """Two listeners must not share a port on one address; 0 takes a free one and clashes with nothing."""
    first_host, second_host = first.replace("port", "host"), second.replace("port", "host")

    def broken(config: Config) -> str | None:
        port, hosts = getattr(config, second), (getattr(config, first_host), getattr(config, second_host))
        if port == 0 or port != getattr(config, first) or not overlap(*hosts):
            return None
        return f"{port} is taken by {first}; give each listener a port of its own"

    return Rule((second, first, second_host, first_host), broken)


def _replicas_share_a_store(config: Config) -> str | None:
    if config.replicas == 1 or config.redis_url is not None:
        return None
    return f"{config.replicas} replicas need a store that they share; set redis_url"


def _one_store(config: Config) -> str | None:
    if config.store_dir is None or config.redis_url is None:
        return None
    return "belongs to a store that the gateway starts itself, and redis_url names another; set one of them"


def _workers_outside(config: Config) -> str | None:
    """What only its address can tell is told when its name is looked up: the worker is not contacted then."""
    rules = DestinationRules(parse_allow_list(config.worker_url_allow), frozenset(config.worker_urls))
    return "; ".join(filter(None, map(rules.refusal, config.worker_urls))) or None


def _busy_means_waiting(config: Config) -> str | None:
    if not config.max_worker_requests or config.queue_timeout_secs:
        return None
    return "has requests wait, and queue_timeout_secs is 0; set how long they may"


RULES: tuple[Rule, ...] = (
    Rule(("host", "api_key", "api_keys_file", "insecure"), _data_without_key),
    Rule(("admin_host", "admin_api_key", "api_keys_file", "insecure"), _admin_without_key),
    Rule(("worker_urls", "worker_url_allow"), _workers_outside),
    Rule(("api_keys_file",), _keys_file),
    Rule(("tenant_hash_key_file", "tenant_hash_key"), _hash_key_file),
    _clash("port", "admin_port"),
    _clash("port", "prometheus_port"),
    _clash("admin_port", "prometheus_port"),
    Rule(("replicas", "redis_url"), _replicas_share_a_store),
    Rule(("store_dir", "redis_url"), _one_store),
    Rule(("max_worker_requests", "queue_timeout_secs"), _busy_means_waiting),
)


def broken_rules(config: Config, wrong_keys: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Key and text of each rule that `config` breaks, leaving out those that read one of `wrong_keys`."""
    for rule in RULES:
        text = None if wrong_keys.intersection(rule.keys) else rule.broken(config)
        if text is not None:
            yield rule.keys[0], text
