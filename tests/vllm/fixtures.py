"""The live workers and the gateway, each started once for the whole session; for every lane that needs them."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.vllm import engine, gateway, workers
from tests.vllm.once import cache_folder
from tests.vllm.process import ServerProcess


@pytest.fixture(scope="session")
def say(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Show progress on a terminal, past pytest's capturing; a pipe stays quiet."""
    capturing = pytestconfig.pluginmanager.getplugin("capturemanager")

    def show(text: str) -> None:
        with capturing.global_and_fixture_disabled():
            if sys.stderr.isatty():
                print(f"\nlive tests: {text}", file=sys.stderr, flush=True)

    return show


@pytest.fixture(scope="session")
def live_workers(say: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[workers.Workers]:
    with ExitStack() as stack:
        with or_give_up():
            prepared = engine.prepare(cache_folder(), say)
            say("starting four workers (about a minute)")
            started = stack.enter_context(workers.running(prepared, tmp_path_factory.mktemp("workers")))
        say("workers are up")
        yield started


@pytest.fixture(scope="session")
def live_gateway(live_workers: workers.Workers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ExitStack() as stack:
        with or_give_up():
            started = stack.enter_context(gateway.running(live_workers, tmp_path_factory.mktemp("gateway")))
        yield started


@contextmanager
def or_give_up() -> Iterator[None]:
    """Without its servers no test of the lane can pass: say why once, not a hundred times."""
    try:
        yield
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        pytest.exit(f"the lane cannot start: {error}", returncode=1)
