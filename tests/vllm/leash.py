"""Runs a command whose whole process group ends when standard input closes: leash.py COMMAND...

Start it in a session of its own and keep the other end of its standard input. The kernel closes that end when its
holder ends, SIGKILL included, so nothing that the command started outlives the tests.
"""

import os
import select
import signal
import subprocess
import sys

GRACE_S = 15


def main() -> None:
    if os.getpgrp() != os.getpid():
        sys.exit("leash: start me in a session of my own; I end my whole process group")
    # A handler, not SIG_IGN: that would be inherited by the command. Only standard input ends the leash early.
    signal.signal(signal.SIGTERM, lambda *_: None)
    command = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    ended = os.pidfd_open(command.pid)
    ready, _, _ = select.select([sys.stdin.fileno(), ended], [], [])
    if ended not in ready:
        command.terminate()
        select.select([ended], [], [], GRACE_S)
    print(f"leash: {sys.argv[1]} ended with {command.poll()}", file=sys.stderr, flush=True)
    # The group is ours, and we are in it: whatever the command left behind goes with us.
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
