"""Ties this process to its parent: when the parent dies, by whatever means, this process is killed too."""

import ctypes
import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1
_WATCH_INTERVAL_S = 0.5


def die_with_parent(expected_pid: int = 0) -> None:
    """From here on this process does not outlive `expected_pid` (0: its present parent).

    Asking the kernel comes first and comparing second, so that a parent which dies at any moment in between is noticed
    by one or the other. Linux sends the signal when the *thread* that started this process ends; start workers from
    the main thread.
    """
    parent = expected_pid or os.getppid()
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            _watch(parent)
    else:
        _watch(parent)
    if os.getppid() != parent:
        os._exit(1)


def _watch(parent: int) -> None:
    """Where the kernel offers no such signal, a thread looks twice a second whether the parent is still there."""

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_INTERVAL_S)
        os._exit(1)

    threading.Thread(target=look, name="parent-watch", daemon=True).start()
