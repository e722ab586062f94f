"""What the configuration says of tenants, as the control process needs it."""

import logging
import secrets
from dataclasses import replace
from pathlib import Path

from pydantic import SecretStr

from app.api.auth import fixed_grants
from app.config.errors import ConfigError
from app.config.keys_file import keys_file_stamp, read_hash_keys, read_keys_file
from app.config.schema import Config
from app.core.fleet.tenant import KeySet, Plane
from app.core.tenants.keyring import Keyring
from app.runtime.tenancy import KeysFile

ADMIN = "admin"
"""The name, in logs, of the one key that `admin_api_key` sets."""

log = logging.getLogger("warmset.tenants")


def with_hash_keys(config: Config) -> Config:
    """The configuration with the tenant hash keys in it: of the file, or one for this run when none are set.

    Serving processes get them with their configuration, so that all of a gateway have the same.
    """
    if config.tenant_hash_key:
        return config
    if config.tenant_hash_key_file is not None:
        keys = read_hash_keys(Path(config.tenant_hash_key_file))
    else:
        keys = [secrets.token_hex(32)]
        if config.redis_url is not None:
            log.warning("no tenant_hash_key is set: replicas, and this gateway after a restart, route by other keys")
    return config.model_copy(update={"tenant_hash_key": tuple(map(SecretStr, keys))})


def admin_ring(config: Config) -> Keyring:
    """Of the admin plane: the key of the configuration, and later those of the keys file."""
    keys = [config.admin_api_key.get_secret_value()] if config.admin_api_key else []
    return Keyring([replace(grant, name=ADMIN) for grant in fixed_grants(keys, ADMIN, Plane.ADMIN)], is_closed=True)


def keys_file(config: Config) -> KeysFile | None:
    if config.api_keys_file is None:
        return None
    path = Path(config.api_keys_file)

    def read() -> KeySet | list[str]:
        try:
            return read_keys_file(path)
        except ConfigError as error:
            return [str(problem) for problem in error.problems]

    return KeysFile(str(path), lambda: keys_file_stamp(path), read)
