"""Starts the embedded server so that it cannot outlive the gateway. Run as a script, never imported.

    python -I -S launch.py MODE PARENT_PID BINARY ARGUMENT...

MODE `prctl` (Linux): ask the kernel to kill this process when its parent dies, check that it has not died already, and
become the server. The request survives exec, and the kernel keeps it even when the parent is killed by SIGKILL. It
fires when the *thread* that started this process ends; the gateway starts it from the thread of its event loop.

MODE `watch` (elsewhere): run the server as a child, and kill it when standard input, a pipe that the gateway holds
open, comes to its end.
"""

import os
import select
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1
LOST_PARENT = 3
"""Exit status: the gateway was gone before the server was started."""
POLL_S = 0.2


def become(parent: int, command: list[str]) -> None:
    import ctypes  # takes longer to import than all the rest, and only this mode needs it

    libc = ctypes.CDLL(None, use_errno=True)
    # SIGKILL: a server that is stopped or stuck would not act on anything else. What it has acknowledged is written.
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:
        sys.exit(LOST_PARENT)
    os.execv(command[0], command)


def watch(command: list[str]) -> int:
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, close_fds=False)
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    while server.poll() is None:
        readable, _, _ = select.select([0], [], [], POLL_S)
        if readable and not os.read(0, 4096):
            server.kill()
            server.wait()
    return server.returncode


if __name__ == "__main__":
    mode, parent_pid, *server_command = sys.argv[1:]
    if mode == "prctl":
        become(int(parent_pid), server_command)
    code = watch(server_command)
    sys.exit(code if code >= 0 else 128 - code)
