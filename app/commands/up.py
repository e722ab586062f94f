"""Try it: a gateway with a store of its own and, when no workers are named, three simulated ones.

  warmset up
  warmset up --workers 4 --speed 10
  warmset up --worker-urls http://127.0.0.1:8000

Takes every setting of `warmset serve` too. The simulated workers have no model behind them: they answer like vLLM in
made-up words, and take the time that Llama-3.3-70B takes on H100s (divided by --speed). Two serve the chat model
`sim-chat`, one the embedding model `sim-embed`. Ctrl-C stops everything.
"""

import argparse
from typing import TYPE_CHECKING

from app import __version__
from app.config import flags
from app.sim.worker.options import PROFILE_NAMES

if TYPE_CHECKING:
    from app.wiring.control import ControlProcess

CHAT, EMBED = "sim-chat", "sim-embed"

READY_S, POLL_S = 30.0, 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    simulated = parser.add_argument_group("simulated workers (when --worker-urls names none)")
    simulated.add_argument(
        "--workers", type=int, default=2, metavar="N", help="chat workers to simulate (default: %(default)s)"
    )
    simulated.add_argument("--speed", type=float, default=1.0, help="divides all their times (default: %(default)s)")
    simulated.add_argument(
        "--model-profile", choices=PROFILE_NAMES, default=PROFILE_NAMES[-1], help="whose times (default: %(default)s)"
    )
    flags.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    import os
    import sys

    from app.commands.gateway import run_gateway
    from app.commands.simulated import SimulatedFleet, WorkerDied
    from app.config.errors import ConfigError
    from app.config.load import load
    from app.config.show import render
    from app.sim.worker.options import WorkerOptions

    try:
        config = load(args, os.environ)
    except ConfigError as error:
        print(f"warmset up: {error}", file=sys.stderr)
        return 2
    if args.print_config:
        sys.stdout.write(render(config))
        return 0
    # Its own words are on standard output; the log is for what goes wrong, unless it is asked for.
    level = config.log_level if "log_level" in config.model_fields_set else "warning"
    is_readable = sys.stderr.isatty()
    if config.worker_urls:
        return run_gateway(config, level, is_readable=is_readable, when_up=_announce)
    chat = WorkerOptions(port=0, served_model_names=(CHAT,), model_profile=args.model_profile, speed=args.speed)
    embed = WorkerOptions(port=0, served_model_names=(EMBED,), task="embed", speed=args.speed)
    try:
        with SimulatedFleet([*[chat] * args.workers, embed]) as fleet:
            simulated = config.model_copy(update={"worker_urls": fleet.urls})
            return run_gateway(simulated, level, is_readable=is_readable, when_up=_announce)
    except WorkerDied as error:
        print(f"warmset up: {error}", file=sys.stderr)
        return 1


async def _announce(gateway: "ControlProcess") -> None:
    """Say where everything is, once the workers have been seen."""
    import asyncio

    waited_s = 0.0
    while gateway.not_ready() is not None and waited_s < READY_S:
        await asyncio.sleep(POLL_S)
        waited_s += POLL_S
    print(_words(gateway), flush=True)


def _words(gateway: "ControlProcess") -> str:
    addresses = gateway.addresses
    models = sorted(gateway.router.pools)
    workers = gateway.router.workers
    model = CHAT if CHAT in models or not models else models[0]
    body = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "Say hello"}}], "max_tokens": 32}}'
    problem = gateway.not_ready()
    key = " -H 'authorization: Bearer YOUR_KEY'" if gateway.config.api_key else ""
    return f"""\
warmset {__version__} is {"up" if problem is None else f"up, but not ready: {problem}"}

  OpenAI API  {addresses["data"]}/v1
  models      {", ".join(models) or "none yet"}
  workers     {len(workers)} ({", ".join(sorted(workers))})
  admin       {addresses["admin"]}/status
  metrics     {addresses["metrics"]}/metrics

Try it:

  curl {addresses["data"]}/v1/chat/completions{key} -H 'content-type: application/json' \\
    -d '{body}'

Ctrl-C stops everything."""
