"""Real SDKs before real vLLM: the environments, and the table at the end."""

from collections.abc import Callable

import pytest

from tests.clients import table
from tests.clients.sdks import Sdks, prepare
from tests.vllm.fixtures import live_gateway, live_workers, or_give_up, say
from tests.vllm.once import cache_folder

TEST_LIMIT_S = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Time limits of set-up are the fixtures' own: the first installs an engine and starts four workers."""
    for item in items:
        if "tests/clients/" in item.path.as_posix():
            item.add_marker(pytest.mark.timeout(TEST_LIMIT_S, func_only=True))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [
        report
        for outcome in ("passed", "failed", "error")
        for report in terminalreporter.getreports(outcome)
        if "tests/clients/test_sdks.py::test_case[" in report.nodeid and (report.when == "call" or report.failed)
    ]
    if reports:
        terminalreporter.section("SDK x case, through the gateway against the worker itself")
        terminalreporter.write_line(table.render({report.nodeid: report.passed for report in reports}))


@pytest.fixture(scope="session")
def sdks(say: Callable[[str], None]) -> Sdks:
    with or_give_up():
        return prepare(cache_folder(), say)


__all__ = ["live_gateway", "live_workers", "say"]
