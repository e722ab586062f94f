"""Logs on standard error: one JSON object per line for machines, or one readable line for a terminal.

A line is `ts, level, logger, event` and fields. The event is a fixed string, so that it can be counted and searched;
what varies stands in fields, given as `extra`. Nothing that a client sent can end a line or begin another: every
character outside of printable ASCII is escaped, and every text is cut at TEXT_MAX.
"""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

import orjson

TEXT_MAX = 2048
"""Characters of one text, of the event too."""

TRACE_MAX = 16 * 1024
"""Characters of a traceback. Its end is kept: that is where the error stands."""

ITEMS_MAX = 64
"""Items of a list or mapping."""

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

QUIET = ("httpx", "httpcore", "asyncio")
"""Libraries whose INFO is a line per probe or scrape."""

_OF_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}
_FIXED = ("ts", "level", "logger", "event", "exception")


def set_up_logging(level: str = "info", *, readable: bool = False, stream: TextIO | None = None) -> None:
    """Send all logging of this process, uvicorn's and warnings too, to `stream` (standard error when None).

    level: debug, info, warning or error. readable: for a terminal, else JSON. uvicorn must be told `log_config=None`.
    """
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(ReadableLines() if readable else JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(LEVELS[level])
    for name in QUIET:
        logging.getLogger(name).setLevel(max(LEVELS[level], logging.WARNING))
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.setLevel(logging.NOTSET)
        logger.propagate = True
    # Our own access log has what uvicorn's has and more (see access.py).
    logging.getLogger("uvicorn.access").propagate = False
    logging.captureWarnings(True)
    # Of a record we write neither thread nor process, and asking for them is a good part of its cost.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    # A closed standard error must not become a traceback per line.
    logging.raiseExceptions = False


class JsonLines(logging.Formatter):
    """One JSON object per record, in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": stamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": event(record),
        }
        line |= fields(record)
        trace = exception(record)
        if trace:
            line["exception"] = trace
        return dumps(line)


class ReadableLines(logging.Formatter):
    """`12:00:00.000 INFO  worker registered  worker=gpu-1:8000`, with the local time of day; tracebacks below it."""

    def format(self, record: logging.LogRecord) -> str:
        time_of_day = datetime.fromtimestamp(record.created).strftime("%H:%M:%S.%f")[:-3]
        line = f"{time_of_day} {record.levelname:<7} {escaped(event(record))}"
        for name, value in fields(record).items():
            text = value if isinstance(value, str) and value and " " not in value else json.dumps(value)
            line += f"  {escaped(name)}={escaped(text)}"
        trace = exception(record)
        if trace:
            line += "".join(f"\n    {escaped(row)}" for row in trace.splitlines())
        return line


def dumps(line: dict[str, Any]) -> str:
    """JSON in ASCII. orjson is ten times as fast but leaves non-ASCII as it is; what has some takes the other way."""
    try:
        text = orjson.dumps(line)
    except orjson.JSONEncodeError:
        # Half of a surrogate pair, which is no UTF-8.
        text = b"\x7f"
    if text.isascii() and b"\x7f" not in text:
        return text.decode("ascii")
    return json.dumps(line, separators=(",", ":")).replace("\x7f", "\\u007f")


def stamp(seconds: float) -> str:
    """Seconds since the epoch as ISO 8601 in UTC with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def event(record: logging.LogRecord) -> str:
    """The fixed string; of libraries that put values into it, the finished message."""
    try:
        text = record.getMessage()
    except Exception:
        # A library's format that does not fit its arguments: its line is better than none.
        text = str(record.msg)
    return cut(text)


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """What was given as `extra`, as JSON values within limits. A name that is ours already gets a `_` behind it."""
    attributes = vars(record)
    return {
        f"{name}_" if name in _FIXED else name: plain(attributes[name]) for name in attributes if name not in _OF_RECORD
    }


def exception(record: logging.LogRecord) -> str:
    """The traceback, from the end if it is long; "" when there is none."""
    parts = []
    if record.exc_info and record.exc_info[0] is not None:
        parts.append(logging.Formatter().formatException(record.exc_info))
    if record.stack_info:
        parts.append(record.stack_info)
    text = "\n".join(parts)
    return text if len(text) <= TRACE_MAX else "…" + text[-TRACE_MAX:]


def plain(value: Any, depth: int = 0) -> Any:
    """`value` as something that JSON has, cut to the limits; its `str` where JSON has nothing for it."""
    exact = type(value)
    if exact is str:
        return value if len(value) <= TEXT_MAX else cut(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**64 else cut(hex(value))
    if isinstance(value, float):
        # JSON has no word for infinity and not-a-number.
        return float(value) if value - value == 0 else str(value)
    if isinstance(value, str):
        return cut(str(value))
    if depth < 4 and isinstance(value, Mapping):
        return {cut(str(key)): plain(item, depth + 1) for key, item in list(value.items())[:ITEMS_MAX]}
    if depth < 4 and isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item, depth + 1) for item in list(value)[:ITEMS_MAX]]
    try:
        return cut(str(value))
    except Exception as error:
        return f"<{type(value).__name__}: {type(error).__name__}>"


def cut(text: str) -> str:
    """At most TEXT_MAX characters, and how many there were."""
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…({len(text)} characters)"


def escaped(text: str) -> str:
    """Without characters that a terminal obeys: controls, line ends and the ones that turn the writing direction."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )
