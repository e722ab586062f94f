"""Starts a serving process, and takes its assignment over on the other side."""

import asyncio
import os
import socket
import sys
from dataclasses import dataclass
from typing import BinaryIO

import orjson

from app.config.schema import Config
from app.config.transfer import from_wire, to_wire


@dataclass(frozen=True, slots=True)
class Assignment:
    """All that a serving process is told at its start.

    number: one for each process ever started. port: the data listener's, as it was really taken.
    """

    config: Config
    number: int
    port: int
    log_level: str
    is_readable: bool


async def launch_serving(assignment: Assignment, end: socket.socket) -> asyncio.subprocess.Process:
    """Start a process that takes over `end` of a channel. OSError when it cannot be started."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "app.commands.process",
        str(os.getpid()),
        str(end.fileno()),
        # Secrets are in it, so it is sent where no list of processes shows it.
        stdin=asyncio.subprocess.PIPE,
        pass_fds=(end.fileno(),),
        # Ctrl-C in a terminal goes to the whole group; how a serving process ends is for the control process to say.
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdin is not None
    words = {
        "config": to_wire(assignment.config),
        "number": assignment.number,
        "port": assignment.port,
        "log_level": assignment.log_level,
        "is_readable": assignment.is_readable,
    }
    process.stdin.write(orjson.dumps(words))
    process.stdin.close()
    return process


def read_assignment(stream: BinaryIO) -> Assignment:
    """What `launch_serving` sent."""
    words = orjson.loads(stream.read())
    config = from_wire(words.pop("config"))
    return Assignment(config, **words)
