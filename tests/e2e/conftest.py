"""Whole processes: `warmset up` and `warmset serve`, with everything that they start."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

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

    def wait_for(self, pattern: str, limit_s: float = 40) -> "re.Match[str]":
        """The first match in what it wrote."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            match = re.search(pattern, self.output)
            if match:
                return match
            if self.process.poll() is not None:
                time.sleep(0.1)
                match = re.search(pattern, self.output)
                if match:
                    return match
                raise AssertionError(f"ended with {self.process.returncode}: {self.output}")
            time.sleep(0.02)
        raise AssertionError(f"no {pattern!r} in {limit_s} s: {self.output}")

    def wait(self, limit_s: float = 20) -> int:
        status = self.process.wait(limit_s)
        for reader in self._readers:
            reader.join(2)
        return status

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
        for reader in self._readers:
            reader.join(2)
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
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.loads(answer.read())

    def status(self) -> Any:
        return self.get(self.admin + "/status")

    def exposition(self) -> str:
        with urllib.request.urlopen(self.metrics + "/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
            return text

    def until(self, what: Callable[[Any], Any], limit_s: float = 20) -> Any:
        """Poll /status until `what` of it is true, and return that."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            found = what(self.status())
            if found:
                return found
            time.sleep(0.05)
        raise AssertionError(f"never came: {self.status()}")


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def all_gone(pids: set[int], limit_s: float = 8) -> set[int]:
    """Those of `pids` that still run after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline and not all(map(is_gone, pids)):
        time.sleep(0.05)
    return {pid for pid in pids if not is_gone(pid)}


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
