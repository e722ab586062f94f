"""The load test of faults works end to end. What it measures on a quiet machine stands in the README."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 280


def test_every_scenario_runs() -> None:
    command = [sys.executable, "-m", "loadtest.reliability", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    for scenario in ("overload x3", "black hole", "store outage"):
        assert f"| {scenario} |" in done.stdout
