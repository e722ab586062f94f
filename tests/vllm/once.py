"""What tests need and takes minutes to make is made once, in the cache folder, by one of several runs at a time.

Each lies under a name that is a hash of everything it is made from: a changed pin makes a new one. A stamp is the last
thing written, so one that was interrupted is made again.
"""

import fcntl
import hashlib
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

STEP_LIMIT_S = 1800
TAIL_LINES = 40

# What the caller's own Python was told is not for another: our PYTHONPATH would put this repository on its path.
OUR_PYTHON = ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")

STAMP = "complete"

Say = Callable[[str], None]
Run = Callable[..., str]


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in OUR_PYTHON}


def cache_folder() -> Path:
    folder = Path(os.environ.get("WARMSET_CACHE") or Path(__file__).resolve().parents[2] / ".cache").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def digest(*recipe: str | bytes) -> str:
    """A short name for what is made from `recipe`."""
    whole = b"\n".join(part.encode() if isinstance(part, str) else part for part in recipe)
    return hashlib.sha256(whole).hexdigest()[:12]


@contextmanager
def alone(path: Path, say: Say) -> Iterator[Run]:
    """Hold the file lock, and give what runs steps under it.

    The steps inherit the lock: when we are killed it is held until the step under way has ended too, so that nobody
    begins anew in a folder into which an orphan still installs.
    """
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another run that makes {path.stem}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield partial(_run, file.fileno())


def _run(lock: int, *command: str | Path, cwd: Path | None = None) -> str:
    """Run one step and return what it printed; that goes into the error when it fails."""
    done = subprocess.run(
        command,
        env=environment(),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=STEP_LIMIT_S,
        pass_fds=(lock,),
        check=False,
    )
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-TAIL_LINES:])
        raise RuntimeError(f"`{' '.join(map(str, command))[:300]}` ended with {done.returncode}:\n{tail}")
    return done.stdout
