"""Ends a Ray that this process has started, if this process is killed.

Most processes of Ray then end by themselves, but some of them only after more than a minute, and their files stay. So a
watchdog process waits for the end of a pipe, which comes when this process has ended. It kills the processes that have
a file of this Ray open, and deletes the files. Processes that a task has started with other files are not killed.
"""

from __future__ import annotations

import shutil

from offbeat.runtime.children.watchdog_process import end_watchdog, start_watchdog

_WATCHDOG = """
import os, shutil, signal, sys, time
folder = sys.argv[1]

def is_of_ray(process):
    files = "/proc/" + process + "/fd/"
    try:
        return any(os.readlink(files + file).startswith(folder + "/") for file in os.listdir(files))
    except OSError:
        return False

sys.stdin.read()
while found := [each for each in os.listdir("/proc") if each.isdigit() and is_of_ray(each)]:
    for process in found:
        try:
            os.kill(int(process), signal.SIGKILL)
        except OSError:
            pass
    time.sleep(0.02)
shutil.rmtree(folder, ignore_errors=True)
"""


class Watchdog:
    """The watchdog of a Ray with all its files in one folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._process = start_watchdog(_WATCHDOG, folder)

    def end(self) -> None:
        """End the watchdog, after Ray was shut down, and delete the files of Ray."""
        end_watchdog(self._process)
        shutil.rmtree(self._folder, ignore_errors=True)
