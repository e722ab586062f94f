"""Lines that can be read by machines, and that nobody can forge."""

import io
import json
import logging
import math
import re
import warnings
from collections.abc import Iterator
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.fleet.reasons import Outcome
from app.telemetry.access import EndedRequests, log_request
from app.telemetry.logs import TEXT_MAX, JsonLines, ReadableLines, set_up_logging, stamp
from tests.telemetry.records import record
from tests.telemetry.test_metrics import metrics_of, samples

log = logging.getLogger("warmset.test")

UVICORN = ("uvicorn", "uvicorn.error", "uvicorn.access", "httpx", "httpcore", "asyncio")


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, raises = root.handlers[:], root.level, logging.raiseExceptions
    asked = (logging.logThreads, logging.logProcesses, logging.logMultiprocessing)
    yield
    root.handlers[:], logging.raiseExceptions = handlers, raises
    root.setLevel(level)
    logging.logThreads, logging.logProcesses, logging.logMultiprocessing = asked
    logging.captureWarnings(False)
    for name in UVICORN:
        logging.getLogger(name).setLevel(logging.NOTSET)
        logging.getLogger(name).propagate = True


@pytest.fixture
def out() -> io.StringIO:
    stream = io.StringIO()
    set_up_logging("info", stream=stream)
    return stream


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def formatted(formatter: logging.Formatter, message: str, /, **fields: object) -> str:
    return formatter.format(
        logging.makeLogRecord({"name": "n", "levelname": "INFO", "msg": message, "created": 1.5} | fields)
    )


def test_a_line(out: io.StringIO) -> None:
    log.info("worker registered", extra={"worker": "gpu-1:8000", "source": "config", "models": ["a"], "age_s": 0.5})
    (line,) = lines(out)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(line.pop("ts")))
    assert list(line) == ["level", "logger", "event", "worker", "source", "models", "age_s"]
    assert line["event"] == "worker registered"
    assert (line["level"], line["logger"], line["models"]) == ("info", "warmset.test", ["a"])


def test_stamp() -> None:
    assert stamp(0.0) == "1970-01-01T00:00:00.000Z"
    assert stamp(1_800_000_000.1239) == "2027-01-15T08:00:00.123Z"


def test_levels(out: io.StringIO) -> None:
    log.debug("no")
    logging.getLogger("httpx").info("HTTP Request: GET http://gpu-1/health")
    logging.getLogger("httpx").warning("yes")
    set_up_logging("error", stream=out)
    log.warning("no")
    assert [line["event"] for line in lines(out)] == ["yes"]


def test_uvicorn_and_warnings_come_out_the_same_way(out: io.StringIO) -> None:
    logging.getLogger("uvicorn.error").info("Started on %s", "x", extra={"color_message": "\x1b[1mStarted\x1b[0m"})
    logging.getLogger("uvicorn.access").info("GET / 200")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", stacklevel=1)
    first, second = lines(out)
    assert (first["event"], first["logger"]) == ("Started on x", "uvicorn.error")
    assert "color_message" not in first
    assert second["logger"] == "py.warnings"


def test_setting_up_twice_writes_each_line_once(out: io.StringIO) -> None:
    set_up_logging("info", stream=out)
    logging.getLogger("uvicorn.error").info("one")
    assert len(lines(out)) == 1


def test_an_exception_is_one_field(out: io.StringIO) -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        log.exception("turn failed", extra={"task": "sync"})
    (line,) = lines(out)
    assert str(line["exception"]).startswith("Traceback")
    assert str(line["exception"]).endswith("ValueError: first\nsecond")


def test_a_long_exception_keeps_its_end() -> None:
    try:
        raise ValueError("x" * 100_000 + "the end")
    except ValueError as error:
        line = formatted(JsonLines(), "e", exc_info=(type(error), error, error.__traceback__))
    assert len(line) < 20_000
    assert json.loads(line)["exception"].endswith("the end")


def test_fields_that_are_ours_already_do_not_replace_ours() -> None:
    line = json.loads(formatted(JsonLines(), "real", event="fake", level="fake", ts="fake", logger="fake"))
    assert (line["event"], line["level"], line["logger"], line["ts"]) == ("real", "info", "n", stamp(1.5))
    assert line["event_"] == line["level_"] == line["ts_"] == "fake"


class Colour(StrEnum):
    RED = "red"


class Broken:
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_any_value_can_be_a_field() -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    values = {
        "a": math.nan, "b": math.inf, "c": 2**70, "d": b"x", "e": {1: {2}}, "f": Colour.RED, "g": Broken(),
        "h": cycle, "i": "\ud800", "j": True, "k": None, "l": list(range(1000)),
    }  # fmt: skip
    line = json.loads(formatted(JsonLines(), "e", **values))
    assert (line["a"], line["b"], line["c"], line["d"]) == ("nan", "inf", hex(2**70), "b'x'")
    assert (line["e"], line["f"], line["g"]) == ({"1": [2]}, "red", "<Broken: RuntimeError>")
    assert (line["j"], line["k"], len(line["l"])) == (True, None, 64)


def test_a_format_that_does_not_fit_is_still_a_line() -> None:
    assert json.loads(formatted(JsonLines(), "x %d", args=("y",)))["event"] == "x %d"


def test_long_texts_are_cut() -> None:
    line = json.loads(formatted(JsonLines(), "e" * 5000, path="p" * 5000))
    assert line["path"] == "p" * TEXT_MAX + "…(5000 characters)"
    assert line["event"] == "e" * TEXT_MAX + "…(5000 characters)"


NASTY = [
    "\n",
    "\r",
    "\x1b[2J",
    "\x9b31m",
    "\u2028",
    "\x85",
    "\x7f",
    "\u202e",
    "\x00",
    '"',
    "\\",
    "é",
    "\ud800",
    " ",
    "=",
    "  a=b",
]


@given(st.lists(st.sampled_from(NASTY) | st.text(max_size=3)).map("".join))
def test_no_text_can_end_a_line_or_speak_to_a_terminal(text: str) -> None:
    line = formatted(JsonLines(), text, path=text, nested={text: [text]})
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["path"] == json.loads(json.dumps(text))
    assert len(line.splitlines()) == 1
    assert formatted(ReadableLines(), text, path=text).isprintable()


def test_readable_lines(out: io.StringIO) -> None:
    set_up_logging("info", readable=True, stream=out)
    log.info("worker registered", extra={"worker": "gpu-1:8000", "why": "a b", "count": 2, "none": ""})
    try:
        raise ValueError("no")
    except ValueError:
        log.exception("failed")
    first, second, *trace = out.getvalue().splitlines()
    assert re.fullmatch(
        r'\d\d:\d\d:\d\d\.\d{3} INFO    worker registered  worker=gpu-1:8000  why="a b"  count=2  none=""', first
    )
    assert second.endswith("ERROR   failed")
    assert trace[0] == "    Traceback (most recent call last):"
    assert trace[-1] == "    ValueError: no"


def test_a_closed_stream_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    set_up_logging("info", stream=stream)
    stream.close()
    log.info("nobody reads this")
    assert capsys.readouterr().err == ""


# The access log


def test_access_line_of_a_stream(out: io.StringIO) -> None:
    log_request(record(ttft_s=0.1, events=21, prompt_tokens=1000, completion_tokens=20, cached_tokens=0))
    (line,) = lines(out)
    del line["ts"]
    assert line == {
        "level": "info",
        "logger": "warmset.access",
        "event": "request",
        "request_id": "req-1",
        "method": "POST",
        "path": "/v1/chat/completions",
        "status": 200,
        "outcome": "served",
        "duration_ms": 1500.0,
        "bytes_in": 100,
        "bytes_out": 2000,
        "model": "llama",
        "worker": "gpu-1:8000",
        "policy": "power_of_two",
        "reason": "lower_load",
        "ttft_ms": 100.0,
        "events": 21,
        "prompt_tokens": 1000,
        "completion_tokens": 20,
        "cached_tokens": 0,
    }


def test_access_line_of_a_refusal_has_no_empty_fields(out: io.StringIO) -> None:
    log_request(record(model="", dispatch=None, status=401, refusal="unauthorized", outcome=Outcome.FAILED))
    (line,) = lines(out)
    assert line["refusal"] == "unauthorized"
    assert not {"model", "worker", "policy", "reason", "ttft_ms", "events", "prompt_tokens"} & set(line)


def test_no_access_line_above_info(out: io.StringIO) -> None:
    set_up_logging("warning", stream=out)
    log_request(record())
    assert out.getvalue() == ""


def test_an_ended_request_is_counted_and_logged(out: io.StringIO) -> None:
    metrics = metrics_of({})
    ended = EndedRequests(metrics)
    assert ended.gap_bounds_s == metrics.gap_bounds_s
    ended.ended(record())
    assert len(lines(out)) == 1
    assert samples(metrics)['warmset_requests_total{endpoint="/v1/chat/completions",model="llama",status="200"}'] == 1
