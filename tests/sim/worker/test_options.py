"""Options become a command line, and come back from it as they were."""

import argparse

import pytest

from app.commands import worker
from app.sim.engine import PROFILES
from app.sim.worker.options import PROFILE_NAMES, WorkerOptions


def test_the_named_profiles_are_the_engines() -> None:
    assert tuple(PROFILES) == PROFILE_NAMES


@pytest.mark.parametrize(
    "options",
    [
        WorkerOptions(),
        WorkerOptions(
            host="::1",
            port=0,
            served_model_names=("a", "-b"),
            model_profile=PROFILE_NAMES[0],
            task="embed",
            speed=float("inf"),
            max_num_seqs=3,
            max_num_batched_tokens=64,
            max_num_queued_reqs=5,
            max_model_len=100,
            block_size=8,
            num_gpu_blocks_override=50,
            api_key="-key",
            seed=7,
            embedding_dim=12,
            labels=("x", "y"),
            enable_server_load_tracking=True,
            enable_request_id_headers=True,
            parent_pid=42,
        ),
    ],
)
def test_argv_round_trip(options: WorkerOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    parser = argparse.ArgumentParser()
    worker.add_arguments(parser)
    served: list[WorkerOptions] = []
    monkeypatch.setattr("app.sim.worker.server.serve", lambda given: served.append(given) or 0)
    argv = options.argv()
    assert argv[1:5] == ["-P", "-m", "app", "worker"]
    assert worker.run(parser.parse_args(argv[5:])) == 0
    assert served == [options]
