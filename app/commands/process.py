"""A serving process of the gateway. Started by `warmset serve` and `warmset up`, never by hand.

python -m app.commands.process PARENT_PID CHANNEL_FD <ASSIGNMENT
"""

import gc
import signal
import socket
import sys

import uvloop

from app.sim.worker.lifeline import die_with_parent
from app.telemetry.logs import set_up_logging
from app.wiring.launch import read_assignment
from app.wiring.serving import serve


def main() -> None:
    parent, channel = int(sys.argv[1]), int(sys.argv[2])
    die_with_parent(parent)
    # The control process passes on what it is told.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assignment = read_assignment(sys.stdin.buffer)
    set_up_logging(assignment.log_level, readable=assignment.is_readable)
    end = socket.socket(fileno=channel)
    end.setblocking(False)
    # What start-up built stays; leaving it out keeps each collection short.
    gc.collect()
    gc.freeze()
    uvloop.run(serve(assignment.config, assignment.number, assignment.port, end))


if __name__ == "__main__":
    main()
