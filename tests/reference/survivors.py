"""A process beside a test process: when that ends, even by kill -9, it ends everything that tests have started.

What a test starts inherits a mark in its environment, and hands it on to what it starts itself. As soon as the test
process is gone, every process with its mark is killed, and every process group that one of them leads. Only for Linux.
Direct forks of the test process have no mark, as they never began a program of their own.

    python tests/reference/survivors.py MARK PID    waits for the end of PID, then kills what bears the mark
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

VARIABLE = "OFFBEAT_TEST_PROCESSES"
"""Environment variable: the marks of all test processes above, with colons between them; pytest may run in a test."""


def mark_and_watch() -> None:
    """Mark all that this process starts from now on, and start the process that ends it afterwards."""
    if sys.platform != "linux":
        return
    mark, marks_above = uuid4().hex, os.environ.get(VARIABLE)
    command = [sys.executable, "-I", "-S", __file__, mark, str(os.getpid())]
    # In a session of its own: a ^C in the terminal is not for it. It holds no pipe open that somebody reads to the end.
    null = subprocess.DEVNULL
    subprocess.Popen(command, stdin=null, stdout=null, stderr=null, start_new_session=True)
    os.environ[VARIABLE] = f"{marks_above}:{mark}" if marks_above else mark


def watch(mark: str, test_process: int) -> None:
    """Wait for the end of the test process, then kill until nothing is left: some may have just started others."""
    with suppress(ProcessLookupError):  # it has ended already
        descriptor = os.pidfd_open(test_process)
        if os.getppid() == test_process:
            select.select([descriptor], [], [])
    while pids := marked(mark):
        for pid in pids:
            with suppress(ProcessLookupError):
                if os.getpgid(pid) in pids:  # else the group may be that of a shell
                    os.killpg(os.getpgid(pid), signal.SIGKILL)
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def marked(mark: str) -> list[int]:
    """Return the pids of the processes that bear a mark; those that only wait to be reaped have lost it."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if mark in _marks_of(pid)]


def _marks_of(pid: int) -> list[str]:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or is somebody else's
        return []
    prefix = f"{VARIABLE}=".encode()
    return next((v.removeprefix(prefix).decode().split(":") for v in variables if v.startswith(prefix)), [])


if __name__ == "__main__":
    watch(sys.argv[1], int(sys.argv[2]))
