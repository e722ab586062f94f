"""The Lua of every compound update, one file per store operation, with its SHA-1 as EVALSHA wants it."""

from hashlib import sha1
from importlib.resources import files


class Script:
    """One script: its text and its name in the server's cache."""

    __slots__ = ("name", "sha", "text")

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = files(__name__).joinpath(f"{name}.lua").read_bytes()
        self.sha = sha1(self.text, usedforsecurity=False).hexdigest()


READ_REGISTRY = Script("read_registry")
REGISTER = Script("register")
DEREGISTER = Script("deregister")
SET_ORDER = Script("set_order")
PUBLISH_LOAD = Script("publish_load")
READ_LOADS = Script("read_loads")
EXCHANGE = Script("exchange")
CAMPAIGN = Script("campaign")
RESIGN = Script("resign")
PUBLISH_PLAN = Script("publish_plan")
READ_PLAN = Script("read_plan")
