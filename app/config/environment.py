"""Settings from environment variables."""

import re
from collections.abc import Iterator, Mapping

from app.config.flags import FILE_VARIABLE
from app.config.settings import VARIABLE_PREFIX

OURS = (FILE_VARIABLE, "WARMSET_VENV", "WARMSET_CACHE")
"""Variables with our prefix that are not settings: the file, and where launcher and tests install."""

SERVICE_LINK = re.compile(
    rf"{VARIABLE_PREFIX}([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?)"
)
LINK_ADDRESS = re.compile(r"(tcp|udp|sctp)://\S+")


def variables(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each variable that is meant as a setting, known or not, and its text. An empty variable counts as not set.

    Kubernetes puts the addresses of every service of the namespace into the environment: for a service called
    `warmset`, WARMSET_PORT is `tcp://10.0.0.1:30000`. Those are nobody's settings and are passed over.
    """
    for name in sorted(environ):
        text = environ[name]
        if not name.startswith(VARIABLE_PREFIX) or name in OURS or not text.strip():
            continue
        if SERVICE_LINK.fullmatch(name) or (name.endswith("_PORT") and LINK_ADDRESS.fullmatch(text)):
            continue
        yield name, text
