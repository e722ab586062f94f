"""Run the gateway in front of your workers, until SIGTERM or Ctrl-C.

  warmset serve --worker-urls http://gpu-1:8000,http://gpu-2:8000
  warmset serve --config warmset.yaml
  warmset serve --config warmset.yaml --print-config

OpenAI clients connect to --host and --port; models are found by asking the workers. Without --redis-url it starts a
store of its own, for this one gateway. Every setting is a flag, a variable WARMSET_<NAME> and a key of the YAML file;
a flag wins over a variable, a variable over the file.

The first SIGTERM makes it not ready, lets running requests end within --shutdown-grace-period-secs, and closes. A
second one cuts them short. Exit status: 0 after a shutdown, 1 when it cannot start, 2 for a configuration that cannot
be used.
"""

import argparse

from app.config import flags


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    import os
    import sys

    from app.commands.gateway import run_gateway
    from app.config.errors import ConfigError
    from app.config.load import load
    from app.config.show import render

    try:
        config = load(args, os.environ)
    except ConfigError as error:
        print(f"warmset serve: {error}", file=sys.stderr)
        return 2
    if args.print_config:
        sys.stdout.write(render(config))
        return 0
    return run_gateway(config, config.log_level)
