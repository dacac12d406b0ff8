"""Process groups: all processes that envs start end with this process, for whatever reason it ends.

Each child leads a process group. Processes that its envs start, such as simulators and game servers, belong to the
group. If this process is killed with SIGKILL, the kernel kills the children (child_main.py), but not the processes
that they have started. So a watchdog process gets the number of each group. It waits for the end of a pipe, which
comes when this process has ended, and kills the groups.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading

from offbeat.runtime.children.watchdog_process import end_watchdog, start_watchdog

_WATCHDOG = """
import os, signal, sys
groups = set()
for line in sys.stdin:
    sign, group = line[0], int(line[1:])
    groups.add(group) if sign == "+" else groups.discard(group)
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
"""


class ProcessGroups:
    """The process groups of this process's children. The watchdog runs only while there is a group."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._watchdog: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def add(self, group: int) -> None:
        """Add a group, which then ends with this process. A watchdog that was killed is replaced."""
        with self._lock:
            if self._watchdog is not None and self._watchdog.poll() is not None:  # it was killed
                self._end_watchdog()
            is_new = self._watchdog is None
            if is_new:
                self._watchdog = start_watchdog(_WATCHDOG)
            self._groups.add(group)
            for each in self._groups if is_new else [group]:
                self._send(f"+{each}")

    def kill(self, group: int) -> None:
        """Kill all processes of a group. Call it before waiting for the leader: after that the number can be reused."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)

    def remove(self, group: int) -> None:
        """Remove a group that has ended. The watchdog ends with the last group."""
        with self._lock:
            self._groups.discard(group)
            self._send(f"-{group}")
            if not self._groups:
                self._end_watchdog()

    def _end_watchdog(self) -> None:
        if self._watchdog is not None:
            end_watchdog(self._watchdog)
            self._watchdog = None

    def _send(self, line: str) -> None:
        if self._watchdog is not None and self._watchdog.stdin is not None:
            with contextlib.suppress(OSError):  # the watchdog was killed
                self._watchdog.stdin.write(line + "\n")
                self._watchdog.stdin.flush()


GROUPS = ProcessGroups()
"""The process groups of this process's children."""
