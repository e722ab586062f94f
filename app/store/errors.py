"""Where the client library's exceptions end."""

from collections.abc import Iterator
from contextlib import contextmanager

from redis.exceptions import RedisClusterException, RedisError

from app.core.fleet.errors import StoreUnavailable

MAX_TEXT = 300
"""Characters of an error kept: some quote the reply that they could not read."""


@contextmanager
def map_errors(secrets: tuple[str, ...] = ()) -> Iterator[None]:
    """Turn whatever the client library, the socket or the clock raises inside into StoreUnavailable.

    A reply that is an error (MISCONF, READONLY, OOM, MOVED, NOPERM, a script's own) is one too: what was asked was not
    done. `secrets` are cut out of the text. The original is not chained, so no traceback can print what it holds.
    """
    try:
        yield
    except TimeoutError:
        raise StoreUnavailable("no answer in time") from None
    except (RedisError, RedisClusterException, OSError, EOFError, UnicodeError) as error:
        raise StoreUnavailable(describe(error, secrets)) from None


def describe(error: BaseException, secrets: tuple[str, ...] = ()) -> str:
    """One printable line that says what happened."""
    text = " ".join(str(error).split()) or "no detail"
    for secret in secrets:
        text = text.replace(secret, "***")
    text = "".join(letter if letter.isprintable() else "?" for letter in text[:MAX_TEXT])
    return f"{type(error).__name__}: {text}"
