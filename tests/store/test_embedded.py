"""The embedded server: it starts, says why when it does not, and leaves nothing behind."""

import asyncio
import os
import random
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.core.fleet.errors import StoreUnavailable
from app.core.fleet.registry import Registration, WorkerSource
from app.runtime.tasks import Tasks
from app.store.embedded import EmbeddedServer, EmbeddedServerError
from app.store.folder import LOCK, SOCKET, find_binary
from app.store.redis import RedisStore
from tests.patience import PATIENCE_S, eventually, until
from tests.store.conftest import PATIENT

GOOD = Registration("h:1", "http://h:1", "a", WorkerSource.ADMIN)
MODES = ("prctl", "watch") if sys.platform == "linux" else ("watch",)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the second when it goes between open and read
        return False
    return state != "Z"


def store_on(server: EmbeddedServer, tasks: Tasks) -> RedisStore:
    return RedisStore(server.url, start=tasks.start, clock=time.monotonic, rng=random.Random(1), limits=PATIENT)


def network_sockets(pid: int) -> set[str]:
    """Inodes of the TCP and UDP sockets that a process has."""
    names = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
    own = {name[8:-1] for name in names if name.startswith("socket:")}
    tables = [Path(f"/proc/net/{table}").read_text() for table in ("tcp", "tcp6", "udp", "udp6")]
    return own & {row.split()[9] for table in tables for row in table.splitlines()[1:]}


def server_pids(socket: Path) -> list[int]:
    """Servers that listen on `socket`, by what they show in the process list."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"valkey-server" in words.split(b"\0")[0] and str(socket).encode() in words:
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize("mode", MODES)
async def test_it_starts_private_and_leaves_nothing_behind(tasks: Tasks, mode: str) -> None:
    server = EmbeddedServer(start=tasks.start, launch_mode=mode)
    await server.start()
    socket = Path(server.url.removeprefix("unix://"))
    assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
    assert server.pid is not None
    assert alive(server.pid)
    store = store_on(server, tasks)
    await store.register(GOOD)
    await store.close()
    (pid,) = server_pids(socket)
    await server.stop()
    await server.stop()
    await eventually(lambda: not alive(pid))
    assert server.pid is None
    assert not socket.parent.exists()


async def test_it_listens_on_no_network(tasks: Tasks) -> None:
    server = EmbeddedServer(start=tasks.start)
    await server.start()
    assert server.pid is not None
    assert not network_sockets(server.pid)
    await server.stop()


async def test_data_in_a_folder_outlive_the_server(tasks: Tasks, tmp_path: Path) -> None:
    for restart in range(2):
        server = EmbeddedServer(start=tasks.start, folder=tmp_path / "new" / "data")
        await server.start()
        store = store_on(server, tasks)
        assert len((await store.read_registry(0.0)).registrations) == restart
        await store.register(GOOD)
        await store.close()
        await server.stop()
        assert not (tmp_path / "new" / "data" / SOCKET).exists()


async def test_data_in_a_folder_outlive_a_kill(tasks: Tasks, tmp_path: Path) -> None:
    server = EmbeddedServer(start=tasks.start, folder=tmp_path)
    await server.start()
    store = store_on(server, tasks)
    await store.register(GOOD)
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    await eventually(lambda: server.restarts)

    async def is_back() -> bool:
        try:
            return (await store.read_registry(0.0)).registrations == (GOOD,)
        except StoreUnavailable:  # it does not run yet, or it reads its file
            return False

    await eventually(is_back)
    await store.close()
    await server.stop()


async def test_a_second_gateway_on_a_folder_is_refused_by_name(tasks: Tasks, tmp_path: Path) -> None:
    first = EmbeddedServer(start=tasks.start, folder=tmp_path)
    await first.start()
    second = EmbeddedServer(start=tasks.start, folder=tmp_path)
    with pytest.raises(EmbeddedServerError, match=rf"in use by another gateway \(process {os.getpid()}\)"):
        await second.start()
    await second.stop()
    store = store_on(first, tasks)
    await store.register(GOOD)
    await store.close()
    await first.stop()
    third = EmbeddedServer(start=tasks.start, folder=tmp_path)
    await third.start()
    await third.stop()


async def test_a_stale_socket_and_lock_do_not_hinder(tasks: Tasks, tmp_path: Path) -> None:
    (tmp_path / SOCKET).write_text("left by a killed server")
    (tmp_path / LOCK).write_text("1\n")
    server = EmbeddedServer(start=tasks.start, folder=tmp_path)
    await server.start()
    await server.stop()


async def test_a_folder_with_a_long_path_has_its_socket_elsewhere(tasks: Tasks, tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 30)
    server = EmbeddedServer(start=tasks.start, folder=folder)
    await server.start()
    socket = Path(server.url.removeprefix("unix://"))
    assert len(str(socket)) <= 100
    assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
    assert (folder / "appendonlydir").exists()
    await server.stop()
    assert not socket.parent.exists()


async def test_a_folder_that_cannot_be_made_is_said(tasks: Tasks, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    server = EmbeddedServer(start=tasks.start, folder=tmp_path / "file" / "data")
    with pytest.raises(EmbeddedServerError, match="cannot be started"):
        await server.start()


async def test_a_server_that_does_not_start_is_quoted(tasks: Tasks, tmp_path: Path) -> None:
    (tmp_path / "appendonlydir").write_text("a file where the server wants a folder")
    server = EmbeddedServer(start=tasks.start, folder=tmp_path)
    with pytest.raises(EmbeddedServerError, match=r"ended with status 1: .*append"):
        await server.start()
    assert server.pid is None


@pytest.mark.parametrize("mode", MODES)
async def test_a_server_that_does_not_answer_is_given_up(tasks: Tasks, tmp_path: Path, mode: str) -> None:
    binary = tmp_path / "silent"
    binary.write_text("#!/bin/sh\necho 'I am thinking'\nexec sleep 60\n")
    binary.chmod(0o700)
    for ready_s in (0.5, 4, 32):
        server = EmbeddedServer(start=tasks.start, binary=binary, ready_s=ready_s, launch_mode=mode)
        with pytest.raises(EmbeddedServerError, match=f"within {ready_s:g} s: ") as raised:
            await server.start()
        assert server.pid is None
        if "it wrote nothing" not in str(raised.value):  # a slow machine takes longer to come that far
            break
    assert str(raised.value).endswith(": I am thinking")


PARENT = """
import asyncio, sys, uvloop
from pathlib import Path
from app.core.fleet.errors import StoreUnavailable
from app.runtime.tasks import Tasks
from app.store.embedded import EmbeddedServer

async def main():
    folder = Path(sys.argv[2]) if sys.argv[2] else None
    server = EmbeddedServer(start=Tasks().start, folder=folder, launch_mode=sys.argv[1])
    await server.start()
    print(server.url.removeprefix("unix://"), flush=True)
    await asyncio.sleep(1000)

uvloop.run(main())
"""


def start_parent(mode: str, folder: str = "") -> tuple[subprocess.Popen[str], Path]:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, mode, folder],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert parent.stdout is not None
    return parent, Path(parent.stdout.readline().strip())


@pytest.mark.parametrize("mode", MODES)
def test_a_killed_gateway_takes_the_server_with_it(mode: str) -> None:
    parent, socket = start_parent(mode)
    with parent:
        (pid,) = server_pids(socket)
        parent.kill()
        parent.wait()
        until(lambda: not alive(pid))
    for left in socket.parent.iterdir():
        left.unlink()
    socket.parent.rmdir()


async def test_a_folder_is_free_again_after_its_gateway_was_killed(
    tasks: Tasks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.store.folder.LOCK_WAIT_S", PATIENCE_S)
    parent, _ = await asyncio.to_thread(start_parent, MODES[0], str(tmp_path))
    with parent:
        parent.kill()
        parent.wait()
        server = EmbeddedServer(start=tasks.start, folder=tmp_path)
        await server.start()
        await server.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's: elsewhere the launcher watches")
def test_the_server_is_not_started_for_a_parent_that_is_gone(tmp_path: Path) -> None:
    launcher = Path(find_binary.__code__.co_filename).with_name("launch.py")
    mark = tmp_path / "ran"
    command = [sys.executable, "-I", "-S", str(launcher), "prctl", "1", "/bin/touch", str(mark)]
    assert subprocess.run(command, check=False).returncode == 3
    assert not mark.exists()


def test_a_machine_without_a_server_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.store.folder.find_spec", lambda name: None)
    with pytest.raises(LookupError, match="name a store's URL"):
        find_binary()
