"""The processes of a load test: started on a core of their own, metered, and ended; none outlives the test."""

import ctypes
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO
from urllib.error import URLError
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[1]

PORTS = range(20_000, 30_000)
"""Below those that kernels hand out by themselves."""

READY_S = 120.0
END_S = 10.0
ALONE_S = 900.0

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


class NotReady(Exception):
    """A process did not start; the text says what it wrote."""


class Busy(Exception):
    """Another load test did not end in time."""


@contextmanager
def alone(told: Callable[[str], None]) -> Iterator[None]:
    """Keep other load tests of this machine away: two that are pinned to one core halve each other's.

    Waits up to ALONE_S for one that is under way; then raises Busy. `told` gets a line when that begins.
    """
    # An abstract socket: its name goes with its process, however that ends.
    with socket.socket(socket.AF_UNIX) as mark:
        give_up_at = time.monotonic() + ALONE_S
        for attempt in count():
            try:
                mark.bind("\0warmset-loadtest")
                break
            except OSError:
                if time.monotonic() > give_up_at:
                    raise Busy(f"another load test runs on this machine since more than {ALONE_S:g} s") from None
                if attempt == 0:
                    told("waiting for another load test of this machine to end")
                time.sleep(1.0)
        yield


class Cores:
    """Which core the gateway gets, and which one stub and client share. One core: everything shares it.

    is_pinned: False leaves it to the kernel, which starts everything sooner and measures nothing.
    """

    def __init__(self, *, is_pinned: bool = True) -> None:
        self.all = sorted(os.sched_getaffinity(0))
        self.is_split = len(self.all) > 1
        self.gateway = {self.all[0]} if is_pinned else set(self.all)
        self.load = {self.all[-1]} if is_pinned else set(self.all)


class Server:
    """One server process with its children. `cores`: where it may run."""

    def __init__(self, arguments: Sequence[str], cores: set[int], errors: int | IO[bytes]) -> None:
        ours = os.sched_getaffinity(0)
        os.sched_setaffinity(0, cores)  # inherited: so all its threads and children are pinned from the start
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", *arguments],
                cwd=ROOT,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                preexec_fn=_die_with_parent,
            )
        finally:
            os.sched_setaffinity(0, ours)

    def read_urls(self) -> list[str]:
        """The JSON line of URLs that our own servers begin with."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise NotReady(f"{' '.join(map(str, self.process.args[2:]))} ended before it listened")  # type: ignore[index]
        urls: list[str] = json.loads(line)
        return urls

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


class GatewayServer(Server):
    """`warmset serve` with one serving process in front of `workers`.

    log_level: "info" writes the access log, to /dev/null. serving_pids: the processes that requests go through, known
    once it is ready.
    """

    def __init__(self, workers: Sequence[str], cores: set[int], *, log_level: str, policy: str | None = None) -> None:
        port, admin_port, prometheus_port = _free_ports(3)
        self.url = f"http://127.0.0.1:{port}"
        self.serving_pids: list[int] = []
        self._status_url = f"http://127.0.0.1:{admin_port}/status"
        self._workers = len(workers)
        arguments = ["-m", "app", "serve", "--worker-urls", ",".join(workers), "--log-level", log_level]
        arguments += ["--port", str(port), "--admin-port", str(admin_port), "--prometheus-port", str(prometheus_port)]
        arguments += ["--processes", "1"]
        if policy:
            arguments += ["--policy", policy]
        super().__init__(arguments, cores, subprocess.DEVNULL if log_level == "info" else sys.stderr.fileno())

    @property
    def pids(self) -> list[int]:
        """The whole tree, serving processes first."""
        return [*self.serving_pids, *(pid for pid in tree(self.process.pid) if pid not in self.serving_pids)]

    def wait_ready(self) -> None:
        """Until it takes requests and has seen every worker healthy."""
        give_up_at = time.monotonic() + READY_S
        while time.monotonic() < give_up_at:
            if self.process.poll() is not None:
                raise NotReady(f"the gateway ended with status {self.process.returncode}")
            if self._is_ready():
                return
            time.sleep(0.05)
        raise NotReady(f"the gateway did not take requests for {self._workers} healthy workers in {READY_S:g} s")

    def _is_ready(self) -> bool:
        try:
            with urlopen(self._status_url, timeout=1) as answer:
                status = json.load(answer)
            with urlopen(f"{self.url}/health", timeout=1):
                pass  # anything but 200 raises
        except (URLError, OSError, ValueError):
            return False
        self.serving_pids = [process["pid"] for process in status["processes"] if process["ready"]]
        healthy = [worker for worker in status["workers"] if worker.get("health") == "healthy" and worker.get("models")]
        return bool(self.serving_pids) and len(healthy) == self._workers


def tree(pid: int) -> list[int]:
    """`pid` and its descendants, the ones that are there now."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                # The command's name may hold anything; what follows its last parenthesis is state and parent.
                parent = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def cpu_s(pids: Sequence[int]) -> float:
    """User and system seconds of these processes, all their threads, ended ones too.

    Read from each process' CPU clock, which counts nanoseconds: /proc/PID/stat counts ticks of 10 ms, a percent of what
    a cell uses, and /proc/PID/schedstat leaves out all threads but the first. The clock's number is made as
    clock_getcpuclockid(3) makes it.
    """
    total = 0
    for pid in pids:
        try:
            total += time.clock_gettime_ns((~pid << 3) | 2)
        except OSError:
            continue  # it has ended
    return total / 1e9


def waited_s(pid: int) -> float | None:
    """Seconds in which the first thread of `pid` could have run and had no core; None when the kernel does not say.

    That is what other processes of the machine, and not the load, took from it.
    """
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


def rss_mib(pid: int) -> float:
    """Resident memory of one process, its shared pages included."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _environment() -> dict[str, str]:
    """Ours, without settings of a gateway: what is measured is what the command line says."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WARMSET_")}
    return kept | {"PYTHONPATH": str(ROOT)}


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, and that no other socket is given by chance until they are taken."""
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise NotReady("no free ports")
