"""The SDKs of the clients lane, each language's in an environment of its own, from locks with hashes."""

import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.vllm.once import STAMP, Run, Say, alone, digest

HERE = Path(__file__).resolve().parent
PYTHON = HERE / "python"
NODE = HERE / "node"
NODE_MAJOR = 20


@dataclass(frozen=True, slots=True)
class Sdks:
    """python: the interpreter that has the SDKs. node: the folder whose programs find theirs."""

    python: Path
    node: Path


def prepare(cache: Path, say: Say) -> Sdks:
    """Install what is not there yet. RuntimeError without Node."""
    _check_node()
    python, node = cache / f"python-sdks-{_python_key()}", cache / f"node-sdks-{_node_key()}"
    with alone(cache / "sdks.lock", say) as run:
        if not (python / STAMP).exists():
            say("installing the SDKs for Python")
            _install_python(python, run)
        if not (node / STAMP).exists():
            say("installing the SDKs for Node")
            _install_node(node, run)
    return Sdks(python / "bin" / "python", node)


def _check_node() -> None:
    try:
        said = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise RuntimeError(f"the lane needs Node {NODE_MAJOR} or newer, with npm: {error}") from None
    if int(said.strip().lstrip("v").split(".")[0]) < NODE_MAJOR:
        raise RuntimeError(f"the lane needs Node {NODE_MAJOR} or newer, not {said.strip()}")


def _python_key() -> str:
    return digest((PYTHON / "requirements.lock").read_bytes(), platform.python_version(), platform.machine())


def _node_key() -> str:
    # A module is looked for beside the program that imports it, so the programs lie there too.
    return digest(*(path.read_bytes() for path in sorted(NODE.iterdir())), platform.machine())


def _install_python(folder: Path, run: Run) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "venv", folder)
    pip = (folder / "bin" / "python", "-m", "pip", "install", "--disable-pip-version-check", "-q")
    run(*pip, "--require-hashes", "-r", PYTHON / "requirements.lock")
    (folder / STAMP).touch()


def _install_node(folder: Path, run: Run) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(NODE, folder)
    run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=folder)
    (folder / STAMP).touch()
