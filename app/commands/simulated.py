"""Simulated workers as children of this process; what `up` and the load tests start."""

import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from types import TracebackType

from app.sim.worker.options import WorkerOptions

READY = "simulated worker ready on "
READY_S = 30.0
STOP_S = 6.0
TAIL_LINES = 20


class WorkerDied(Exception):
    """A simulated worker did not start. Holds what it wrote last."""


class SimulatedFleet:
    """Starts workers on entry and ends them on exit; they end too when this process is killed in any way.

    urls: where they listen, in the order of the options.
    """

    def __init__(self, options: Sequence[WorkerOptions]) -> None:
        self._options = options
        self._children: list[_Child] = []
        self.urls: tuple[str, ...] = ()

    def __enter__(self) -> "SimulatedFleet":
        try:
            # All at once: most of a start is imports, and they go in parallel.
            self._children = [_Child(options) for options in self._options]
            self.urls = tuple(child.wait_ready() for child in self._children)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        for child in self._children:
            child.process.terminate()
        for child in self._children:
            try:
                child.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
            child.close()


class _Child:
    def __init__(self, options: WorkerOptions) -> None:
        self.process = subprocess.Popen(
            options.argv(die_with_me=True),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            # The child imports this very package, wherever this process found it.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            # Ctrl-C in a terminal goes to the whole group; workers have to outlive the drain of the gateway.
            start_new_session=True,
        )
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._told = threading.Event()
        self._url = ""
        # A pipe that nobody reads stops its writer, so it is read to the end.
        self._reader = threading.Thread(target=self._read, name="simulated worker log", daemon=True)
        self._reader.start()

    def wait_ready(self) -> str:
        self._told.wait(READY_S)
        if not self._url:
            raise WorkerDied("a simulated worker did not start: " + (" | ".join(self._tail) or "it wrote nothing"))
        return self._url

    def close(self) -> None:
        """After its end."""
        assert self.process.stderr is not None
        self._reader.join()
        self.process.stderr.close()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if line.startswith(READY):
                self._url = line.removeprefix(READY).strip()
                self._told.set()
            else:
                self._tail.append(line.rstrip())
        self._told.set()
