"""The lane against real vLLM: what its tests share, and the table at its end."""

from pathlib import Path

import pytest

from tests.vllm import table
from tests.vllm.fixtures import live_gateway, live_workers, say

HERE = Path(__file__).resolve().parent
TEST_LIMIT_S = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Time limits of set-up are the fixtures' own; and tests that cost a worker come last."""
    for item in (item for item in items if item.path.is_relative_to(HERE)):
        # func_only: the first test's set-up installs an engine and starts four workers.
        item.add_marker(pytest.mark.timeout(TEST_LIMIT_S, func_only=True))
    items.sort(key=lambda item: item.path.name == "test_worker_loss.py")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table of endpoints, clients and encodings, when the lane ran as a whole or in part."""
    passed: dict[str, bool] = {}
    for outcome, is_passed in (("passed", True), ("failed", False), ("error", False)):
        for report in terminalreporter.getreports(outcome):
            within = report.nodeid.partition("tests/vllm/")[2]
            if within and (report.when == "call" or not is_passed):
                passed[within] = is_passed
    if passed:
        terminalreporter.section("endpoint x client x encoding, through the gateway against the worker itself")
        terminalreporter.write_line(table.render(table.outcomes(passed)))


__all__ = ["live_gateway", "live_workers", "say"]
