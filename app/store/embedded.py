"""The store when none is configured: a real server, run as a child of the gateway on a unix socket."""

import asyncio
import logging
import os
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path

from app.store.connections import StartTask
from app.store.folder import StoreFolder, find_binary

log = logging.getLogger("warmset.store")

LAUNCHER = Path(__file__).with_name("launch.py")
READY_S = 30.0
"""Longest wait for the server to answer PING; it may have a log of appended commands to load."""
STOP_S = 3.0
"""Wait after SIGTERM, before SIGKILL."""
RESTART_S = (0.05, 5.0)
"""First and longest pause before a server that ended is started again; doubled each time, reset when it answers."""
TAIL_LINES = 40
PASSED_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LANG", "LC_ALL", "TMPDIR")
"""All that the child gets of our environment, which holds keys."""


class EmbeddedServerError(Exception):
    """The embedded server cannot be used. The text says why and ends with what the server wrote last."""


class EmbeddedServer:
    """Starts the server, keeps it running, ends it.

    Without a folder its data are in memory and go with it: facts are published anew. With one it appends every write to
    a file there, and a second gateway that is given the same folder is refused.
    url: where it listens, `unix://...`, the same over restarts. restarts: how often it ended by itself.
    """

    def __init__(
        self,
        *,
        start: StartTask,
        folder: Path | None = None,
        binary: Path | None = None,
        ready_s: float = READY_S,
        launch_mode: str = "prctl" if sys.platform == "linux" else "watch",
    ) -> None:
        self._start_task = start
        self._folder = StoreFolder(folder)
        self._binary = binary
        self._ready_s = ready_s
        self._launch_mode = launch_mode
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._supervising: asyncio.Task[None] | None = None
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.restarts = 0

    @property
    def url(self) -> str:
        return f"unix://{self._folder.socket}"

    @property
    def pid(self) -> int | None:
        """The child's process id, or None while there is none. In mode `watch` it is the watcher's."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def start(self) -> None:
        """Start it and wait until it answers. Raises EmbeddedServerError, and leaves nothing behind then."""
        try:
            self._binary = self._binary or find_binary()
            await self._folder.open()
        except (OSError, LookupError) as error:
            raise EmbeddedServerError(f"the embedded store cannot be started: {error}") from None
        try:
            await self._launch()
        except BaseException:
            await self.stop()
            raise
        self._supervising = self._start_task(self._supervise(), "embedded store")

    async def stop(self) -> None:
        """End the server and remove socket and temporary folder. May be called at any time, and twice."""
        if self._supervising is not None:
            self._supervising.cancel()
            await asyncio.wait({self._supervising})
            self._supervising = None
        await self._end()
        self._folder.close()

    async def _supervise(self) -> None:
        pause_s = RESTART_S[0]
        while True:
            process = self._process
            if process is not None:
                code = await process.wait()
                self.restarts += 1
                log.warning("embedded store ended (%s), starting it again", code, extra={"tail": self._written()})
            await asyncio.sleep(pause_s)
            pause_s = min(RESTART_S[1], pause_s * 2)
            try:
                await self._launch()
            except (EmbeddedServerError, OSError) as error:
                log.error("embedded store does not start: %s", error)
                await self._end()
            else:
                pause_s = RESTART_S[0]
                log.info("embedded store runs again", extra={"pid": self.pid})

    async def _launch(self) -> None:
        self._folder.remove_socket()
        self._tail.clear()
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            str(LAUNCHER),
            self._launch_mode,
            str(os.getpid()),
            str(self._binary),
            *self._folder.server_arguments(),
            # In mode `watch` this pipe is the sign of life; we never write to it.
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            # Ctrl-C in a terminal goes to the whole group; the store has to outlive the drain of the gateway.
            start_new_session=True,
            # The child holds the lock too, so a folder is free only when the server on it is gone.
            pass_fds=self._folder.locks(),
            env={name: os.environ[name] for name in PASSED_ENVIRONMENT if name in os.environ},
        )
        assert process.stdout is not None
        self._reading = self._start_task(self._read_log(process.stdout), "embedded store log")
        await self._wait_ready(process)

    async def _wait_ready(self, process: asyncio.subprocess.Process) -> None:
        ended = self._start_task(process.wait(), "embedded store start")
        try:
            async with asyncio.timeout(self._ready_s):
                while not ended.done():
                    if await _answers_ping(self._folder.socket):
                        return
                    await asyncio.wait({ended}, timeout=0.02)
        except TimeoutError:
            raise EmbeddedServerError(
                f"the embedded store did not answer within {self._ready_s:g} s: {self._written()}"
            ) from None
        finally:
            ended.cancel()
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=1)
        raise EmbeddedServerError(f"the embedded store ended with status {process.returncode}: {self._written()}")

    async def _end(self) -> None:
        """Terminate the child, if there is one, and wait for it."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            if self._folder.durable or self._launch_mode == "watch":
                process.terminate()
            else:
                process.kill()  # nothing to save, and its own shutdown takes up to 0.1 s to begin
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            if process.stdin is not None:
                process.stdin.close()  # mode `watch`: the watcher kills the server
                with suppress(TimeoutError):
                    async with asyncio.timeout(1):
                        await process.wait()
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if process.stdin is not None:
            process.stdin.close()
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=1)

    async def _read_log(self, stream: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await stream.readline()
            except ValueError:
                continue  # longer than the reader's buffer, which it has dropped
            if not line:
                return
            text = line.decode("utf-8", "replace").rstrip()
            self._tail.append(text)
            log.debug("embedded store: %s", text)

    def _written(self) -> str:
        return " | ".join(self._tail) or "it wrote nothing"


async def _answers_ping(socket: Path) -> bool:
    try:
        reader, writer = await asyncio.open_unix_connection(str(socket))
    except OSError:
        return False
    try:
        writer.write(b"PING\r\n")
        async with asyncio.timeout(0.5):
            return await reader.readline() == b"+PONG\r\n"  # "-LOADING ..." while it reads its file
    except (OSError, TimeoutError):
        return False
    finally:
        writer.close()
