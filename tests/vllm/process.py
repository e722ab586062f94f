"""A server process of the tests: started on a leash, waited for, stopped with everything that it started."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import httpx

LEASH = Path(__file__).with_name("leash.py")
TAIL_LINES = 60
STOP_LIMIT_S = 60.0
POLL_S = 0.2
TRY_S = 5.0
"""For one of many attempts."""


class ServerProcess:
    """One server on 127.0.0.1:port, with its output in a file."""

    def __init__(
        self, name: str, port: int, command: Sequence[str | Path], environment: Mapping[str, str], folder: Path
    ) -> None:
        self.name = name
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as log:
            self._leash = subprocess.Popen(
                [sys.executable, "-I", LEASH, *command],
                env=dict(environment),
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until(self, is_ready: Callable[[httpx.Client], bool], limit_s: float) -> None:
        """Return when `is_ready` says so; connections that fail mean not yet. Fails early when the process died."""
        give_up_at = time.monotonic() + limit_s
        with httpx.Client(base_url=self.url, timeout=TRY_S) as client:
            while True:
                try:
                    if is_ready(client):
                        return
                except httpx.TransportError:
                    pass
                if self._leash.poll() is not None:
                    raise RuntimeError(f"{self.name} died before it was ready{self._log_tail()}")
                if time.monotonic() > give_up_at:
                    raise RuntimeError(f"{self.name} was not ready within {limit_s:.0f} s{self._log_tail()}")
                time.sleep(POLL_S)

    def kill(self) -> None:
        """SIGKILL to every process of it at once. Returns when nobody listens on its port any more."""
        os.killpg(self._leash.pid, signal.SIGKILL)
        self._leash.wait(STOP_LIMIT_S)
        wait_until_refused(self.port)

    def begin_stop(self) -> None:
        """Let go of the leash: SIGTERM to the server now, SIGKILL to what is left of its group later."""
        assert self._leash.stdin is not None
        self._leash.stdin.close()

    def finish_stop(self) -> None:
        try:
            self._leash.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def _log_tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        return f"; the end of {self.log}:\n" + "\n".join(lines)


def wait_until_refused(port: int) -> None:
    give_up_at = time.monotonic() + STOP_LIMIT_S
    while time.monotonic() < give_up_at:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=TRY_S).close()
        except ConnectionRefusedError:
            return
        except OSError:  # a dying server may also leave a connection hanging, or reset it
            pass
    raise RuntimeError(f"port {port} is still open after {STOP_LIMIT_S:.0f} s")


def is_healthy(client: httpx.Client) -> bool:
    return client.get("/health").status_code == 200
