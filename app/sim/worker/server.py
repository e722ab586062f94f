"""The worker process: listener, signals, and the task that drives the engine.

The first SIGTERM or SIGINT closes the listener and ends running requests with the reason "abort", so that streams
finish properly; the process is gone within five seconds. A second signal ends it at once.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator

import uvicorn

from app.sim.worker.app import App
from app.sim.worker.endpoints import ROUTES
from app.sim.worker.lifeline import die_with_parent
from app.sim.worker.options import WorkerOptions
from app.sim.worker.simulated import SimulatedWorker

GRACE_S = 4
BACKLOG = 2048


class WorkerServer(uvicorn.Server):
    """Uvicorn with this worker's way to stop and its ready line."""

    def __init__(self, config: uvicorn.Config, worker: SimulatedWorker, url: str) -> None:
        super().__init__(config)
        self._worker = worker
        self._url = url

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        print(f"simulated worker ready on {self._url}", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        handled = (signal.SIGTERM, signal.SIGINT)
        for number in handled:
            loop.add_signal_handler(number, self._stop, number)
        try:
            yield
        finally:
            for number in handled:
                loop.remove_signal_handler(number)

    def _stop(self, number: int) -> None:
        if self.should_exit:
            os._exit(128 + number)
        self.should_exit = True
        self._worker.driver.close()


def serve(options: WorkerOptions) -> int:
    """Run a worker until it is told to stop; its exit status. ValueError when the options do not fit together,
    OSError when it cannot listen."""
    if options.parent_pid is not None:
        die_with_parent(options.parent_pid)
    worker = SimulatedWorker(options)
    listener = _listen(options.host, options.port)
    config = uvicorn.Config(
        App(worker, ROUTES),
        http="httptools",
        loop="uvloop",
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    host = f"[{options.host}]" if ":" in options.host else options.host
    server = WorkerServer(config, worker, f"http://{host}:{listener.getsockname()[1]}")
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(_serve(server, worker, listener))
    return 0


async def _serve(server: WorkerServer, worker: SimulatedWorker, listener: socket.socket) -> None:
    """Server and engine together: a failure of either ends both, loudly."""
    async with asyncio.TaskGroup() as tasks:
        engine = tasks.create_task(worker.driver.run())
        await server.serve(sockets=[listener])
        engine.cancel()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)
