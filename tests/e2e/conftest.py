"""Whole processes: `warmset up` and `warmset serve`, with everything that they start."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.store.embedded import LAUNCHER
from app.store.folder import find_binary
from tests.patience import PATIENCE_S, until

ROOT = Path(__file__).resolve().parents[2]
FREE_PORTS = ("--port", "0", "--admin-port", "0", "--prometheus-port", "0")


class Command:
    """A running `warmset`; its output is read as it comes."""

    def __init__(self, *arguments: str, env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "app", *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.out: list[str] = []
        self.err: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=(stream, lines), daemon=True)
            for stream, lines in ((self.process.stdout, self.out), (self.process.stderr, self.err))
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream: Any, lines: list[str]) -> None:
        for line in stream:
            lines.append(line)

    @property
    def output(self) -> str:
        return "".join(self.out) + "".join(self.err)

    def wait_for(self, pattern: str) -> "re.Match[str]":
        """The first match in what it wrote."""

        def match() -> "re.Match[str] | None":
            has_ended = self.process.poll() is not None
            if has_ended:
                self._read_to_the_end()
            found = re.search(pattern, self.output)
            assert found or not has_ended, f"ended with {self.process.returncode}: {self.output}"
            return found

        try:
            found = until(match)
        except AssertionError as error:
            raise AssertionError(f"no {pattern!r}: {self.output}") from error
        assert found is not None
        return found

    def wait(self) -> int:
        status = self.process.wait(PATIENCE_S)
        self._read_to_the_end()
        return status

    def _read_to_the_end(self) -> None:
        """Its output ends with it: whoever it left behind, and still writes there, is found out elsewhere."""
        for reader in self._readers:
            reader.join(PATIENCE_S)

    def tree(self) -> set[int]:
        """Process ids of it and of all its descendants."""
        children: dict[int, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                except OSError:
                    continue
                children.setdefault(parent, []).append(int(entry.name))
        found: set[int] = set()
        todo = [self.process.pid]
        while todo:
            pid = todo.pop()
            found.add(pid)
            todo += children.get(pid, [])
        return found

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._read_to_the_end()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


class Gateway(Command):
    """`warmset up` or `serve` on free ports, from the moment that it listens."""

    def __init__(self, *arguments: str, env: dict[str, str] | None = None) -> None:
        super().__init__(*arguments, *FREE_PORTS, "--log-level", "info", env=env)

    def listening(self) -> "Gateway":
        line = self.wait_for(r'\{.*"event": ?"listening".*\}').group()
        listening = json.loads(line)
        self.data, self.admin, self.metrics = listening["data"], listening["admin"], listening["metrics"]
        return self

    def get(self, url: str) -> Any:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return json.loads(answer.read())

    def status(self) -> Any:
        return self.get(self.admin + "/status")

    def exposition(self) -> str:
        with urllib.request.urlopen(self.metrics + "/metrics", timeout=PATIENCE_S) as answer:
            text: str = answer.read().decode()
            return text

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """One request to the admin API: its status and its answer."""
        request = urllib.request.Request(
            self.admin + path,
            method=method,
            data=json.dumps(body).encode() if body is not None else None,
            headers={"content-type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def change(self, method: str, path: str, body: Any = None, *, status: int) -> Any:
        """A change through the admin API, as an operator makes it: who is told that the store is away asks again.

        A store that is slow may have taken the change of the first attempt, so only the first answer's status is known.
        """
        attempts: list[int] = []

        def made() -> "tuple[int, Any] | None":
            answered = self.call(method, path, body)
            attempts.append(answered[0])
            return None if answered[0] == 503 else answered

        found = until(made)
        assert found is not None
        assert found[0] == status or len(attempts) > 1, found
        return found[1]

    def until(self, what: Callable[[Any], Any], *, limit_s: float = PATIENCE_S) -> Any:
        """Poll /status until `what` of it is true, and return that."""
        try:
            return until(lambda: what(self.status()), limit_s=limit_s)
        except AssertionError as error:
            raise AssertionError(f"never came: {self.status()}") from error


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def await_end(pids: set[int]) -> None:
    """Fails when one of the processes stays."""
    try:
        until(lambda: all(map(is_gone, pids)))
    except AssertionError:
        left = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids if not is_gone(pid)}
        raise AssertionError(f"left behind: {left}") from None


@pytest.fixture
def run() -> Iterator[Callable[..., Command]]:
    started: list[Command] = []

    def start(*arguments: str, env: dict[str, str] | None = None) -> Command:
        started.append(Command(*arguments, env=env))
        return started[-1]

    yield start
    for command in started:
        command.end()


@pytest.fixture
def gateway() -> Iterator[Callable[..., Gateway]]:
    started: list[Gateway] = []

    def start(*arguments: str, env: dict[str, str] | None = None) -> Gateway:
        started.append(Gateway(*arguments, env=env))
        return started[-1].listening()

    yield start
    for command in started:
        command.end()


@pytest.fixture
def store() -> Iterator[tuple[str, int]]:
    """A Valkey of this test: its URL and its process id."""
    with tempfile.TemporaryDirectory(prefix="warmset-") as folder:
        socket = Path(folder) / "s"
        launcher = [sys.executable, "-I", "-S", str(LAUNCHER), "prctl", str(os.getpid()), str(find_binary())]
        options = ["--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", folder]
        with subprocess.Popen(launcher + options, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as server:
            until(lambda: socket.exists() or server.poll() is not None)
            assert server.poll() is None
            yield f"unix://{socket}", server.pid
            server.kill()
