"""A process beside a test process: when that ends, even by kill -9, it ends everything that tests have started.

What a test starts inherits a mark in its environment, and hands it on to what it starts itself. As soon as the test
process is gone, every process with its mark is killed, and every process group that one of them leads. Direct forks of
the test process bear no mark, as they never began a program of their own: each tells its pid at its start. Only for
Linux.

    python tests/support/survivors.py MARK PID    waits for the end of PID, then kills what bears the mark, and the
                                                    pids on its standard input
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


ENOUGH_SCANS = 10
"""Scans in a row that find nothing: a process shows no environment for a moment while it begins a program."""


def mark_and_watch() -> None:
    """Mark all that this process starts from now on, and start the process that ends it afterwards."""
    if sys.platform != "linux":
        return
    mark, marks_above = uuid4().hex, os.environ.get(VARIABLE)
    command = [sys.executable, "-I", "-S", __file__, mark, str(os.getpid())]
    # In a session of its own: a ^C in the terminal is not for it. It holds no pipe open that somebody reads to the end.
    null = subprocess.DEVNULL
    pids, tell = os.pipe()
    subprocess.Popen(command, stdin=pids, stdout=null, stderr=null, start_new_session=True)
    os.close(pids)
    os.register_at_fork(after_in_child=lambda: _tell_pid(tell))
    os.environ[VARIABLE] = f"{marks_above}:{mark}" if marks_above else mark


def _tell_pid(pipe: int) -> None:
    """Tell the watching process the pid of a process that was forked just now."""
    with suppress(OSError):  # nobody watches any more
        os.write(pipe, f"{os.getpid()}\n".encode())


def watch(mark: str, test_process: int) -> None:
    """Wait for the end of the test process, then kill until nothing is left: some may have just started others."""
    forks: dict[int, bytes] = {}
    with suppress(ProcessLookupError):  # it has ended already
        descriptor = os.pidfd_open(test_process)
        while os.getppid() == test_process and descriptor not in select.select([descriptor, sys.stdin], [], [])[0]:
            forks |= {pid: _start_of(pid) for pid in _told_pids()}
    forks |= {pid: _start_of(pid) for pid in _told_pids()}
    scans_without = 0
    while scans_without < ENOUGH_SCANS:
        pids = [*marked(mark), *(pid for pid, start in forks.items() if start and _start_of(pid) == start)]
        scans_without = 0 if pids else scans_without + 1
        for pid in pids:
            with suppress(ProcessLookupError):
                if os.getpgid(pid) in pids:  # else the group may be that of a shell
                    os.killpg(os.getpgid(pid), signal.SIGKILL)
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _told_pids() -> list[int]:
    """Return the pids on standard input that have not been read. A line is written at once, so none is cut."""
    os.set_blocking(sys.stdin.fileno(), False)
    with suppress(BlockingIOError):
        return [int(line) for line in os.read(sys.stdin.fileno(), 1 << 16).split()]
    return []


def _start_of(pid: int) -> bytes:
    """Return when a process began, which tells it from a later one with its pid; nothing if it has ended."""
    with suppress(OSError):
        state, *_, start = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[:20]
        return b"" if state == b"Z" else start
    return b""


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
