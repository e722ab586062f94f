"""The live workers and the gateway, each started once for the whole session."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.vllm import engine, gateway, table, workers
from tests.vllm.process import ServerProcess

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


@pytest.fixture(scope="session")
def say(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Show progress on a terminal, past pytest's capturing; a pipe stays quiet."""
    capturing = pytestconfig.pluginmanager.getplugin("capturemanager")

    def show(text: str) -> None:
        with capturing.global_and_fixture_disabled():
            if sys.stderr.isatty():
                print(f"\nvllm tests: {text}", file=sys.stderr, flush=True)

    return show


@pytest.fixture(scope="session")
def live_workers(say: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[workers.Workers]:
    with ExitStack() as stack:
        with _or_give_up():
            prepared = engine.prepare(engine.cache_folder(), say)
            say("starting four workers (about a minute)")
            started = stack.enter_context(workers.running(prepared, tmp_path_factory.mktemp("workers")))
        say("workers are up")
        yield started


@pytest.fixture(scope="session")
def live_gateway(live_workers: workers.Workers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ExitStack() as stack:
        with _or_give_up():
            started = stack.enter_context(gateway.running(live_workers, tmp_path_factory.mktemp("gateway")))
        yield started


@contextmanager
def _or_give_up() -> Iterator[None]:
    """Without its servers no test of the lane can pass: say why once, not a hundred times."""
    try:
        yield
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        pytest.exit(f"the lane cannot start: {error}", returncode=1)
