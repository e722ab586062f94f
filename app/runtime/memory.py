"""How much memory this process has, and how much it may have."""

import os
from pathlib import Path

STATM = Path("/proc/self/statm")
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Of the container, by cgroups' second and first version."""

UNLIMITED = 1 << 60
"""What the first version says when there is no limit is beyond this."""

OURS = 0.9
"""Share of a container's memory that the serving processes may have together: the rest is the control process's and the
store's."""


def resident_bytes() -> int | None:
    """Of this process; None where the system does not say."""
    try:
        return int(STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def limit_bytes(processes: int) -> int | None:
    """What one of so many serving processes may have of its container's memory; None without a limit."""
    for path in LIMITS:
        try:
            limit = int(path.read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
        if limit < UNLIMITED:
            return int(limit * OURS / processes)
    return None
