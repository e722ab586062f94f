"""Nothing outlives the tests, however they end. No engine is needed to know that."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S, until
from tests.vllm.process import LEASH, ServerProcess

# A server that ignores SIGTERM in a child of its own, as one does whose worker hangs; it writes both process ids.
STUBBORN = """
import os, signal, sys, time
child = os.fork()
if not child:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
open(sys.argv[1], "w").write(f"{os.getpid()} {child}")
time.sleep(600)
"""

# What a test session does, and is then killed: start a server on a leash and hold the leash.
HOLDER = """
import subprocess, sys, time
leash = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, start_new_session=True)
time.sleep(600)
"""


def is_alive(process: int) -> bool:
    try:
        # The state follows the name, which stands in parentheses. A zombie is dead, just not yet collected.
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_gone(processes: list[int]) -> None:
    until(lambda: not any(map(is_alive, processes)))


def started(ids: Path) -> list[int]:
    """The ids that STUBBORN wrote."""
    until(lambda: ids.exists() and ids.read_text())
    processes = [int(text) for text in ids.read_text().split()]
    assert all(map(is_alive, processes))
    return processes


@pytest.fixture
def ids(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "ids"
    yield path
    for process in map(int, path.read_text().split()):
        if is_alive(process):
            os.kill(process, 9)


def test_holder_is_killed(ids: Path) -> None:
    leash = [sys.executable, "-I", str(LEASH), sys.executable, "-c", STUBBORN, str(ids)]
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, *leash])
    processes = started(ids)
    holder.kill()
    holder.wait()
    wait_until_gone(processes)


def test_stop(ids: Path, tmp_path: Path) -> None:
    server = ServerProcess("stubborn", 1, (sys.executable, "-c", STUBBORN, str(ids)), os.environ, tmp_path)
    processes = started(ids)
    server.begin_stop()
    server.finish_stop()
    wait_until_gone(processes)


def test_kill(ids: Path, tmp_path: Path) -> None:
    server = ServerProcess("stubborn", 1, (sys.executable, "-c", STUBBORN, str(ids)), os.environ, tmp_path)
    processes = started(ids)
    server.kill()
    wait_until_gone(processes)
    server.begin_stop()
    server.finish_stop()


def test_death_before_ready_is_told_with_the_log(tmp_path: Path) -> None:
    server = ServerProcess(
        "broken", 1, (sys.executable, "-c", "raise SystemExit('no such model')"), os.environ, tmp_path
    )
    with pytest.raises(RuntimeError, match=r"(?s)broken died before it was ready.*no such model"):
        server.wait_until(lambda client: client.get("/health").is_success, PATIENCE_S)
    server.begin_stop()
