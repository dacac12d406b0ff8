"""Training leaves the caller's process as it was, however it ends.

What a run changes in the process that calls it is put back: thread counts, cores, niceness, what malloc keeps, the
search path and the environment. The handlers of signals are put back by `runtime/signals.py`, which installs its own.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from offbeat.core.allocator import stop_keeping_memory
from offbeat.core.threads import SPINNING, ThreadCounts, niceness, place, usable_core_numbers

_TASKS = Path("/proc/self/task")
"""Of Linux: the threads of this process, by number."""


class CallerState:
    """What the caller's process was like when this was made; see `caller_state`."""

    def __init__(self) -> None:
        self._folder = str(Path.cwd())
        self._was_searched = self._folder in sys.path
        self._environment = {name: os.environ.get(name) for name in SPINNING}
        self._cores, self._niceness, self._tasks = usable_core_numbers(), niceness(), _tasks()
        self._counts: ThreadCounts | None = None

    def remember_thread_counts(self) -> None:
        """Remember how many threads torch and BLAS use. Call it once they are loaded, and before they are limited."""
        self._counts = self._counts or ThreadCounts()

    def put_back(self) -> None:
        """Put everything back."""
        if self._counts is not None:
            self._counts.put_back()
        if (usable_core_numbers(), niceness()) != (self._cores, self._niceness):
            self._put_back_scheduling()
        if not self._was_searched and self._folder in sys.path:
            sys.path.remove(self._folder)
        for name, value in self._environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        stop_keeping_memory()

    def _put_back_scheduling(self) -> None:
        """Put back cores and niceness of this thread, and of those that libraries have started since."""
        for task in (0, *(_tasks() - self._tasks)):
            with suppress(OSError):  # a thread has ended; or the niceness of a process of its own, which may stay
                place(self._cores, None, task)
                os.setpriority(os.PRIO_PROCESS, task, self._niceness)


@contextmanager
def caller_state() -> Iterator[CallerState]:
    """While entered, a run may change this process; what it changed is put back when it is left, whatever ends it."""
    state = CallerState()
    try:
        yield state
    finally:
        state.put_back()


def _tasks() -> set[int]:
    return {int(task.name) for task in _TASKS.iterdir()} if _TASKS.is_dir() else set()


# --- what cannot be put back everywhere ---------------------------------------------------------------------

_owned = False


def own_process() -> None:
    """Say that this process runs `offbeat` and nothing else: what cannot be put back may be changed in it, too."""
    global _owned  # noqa: PLW0603 - a fact about the process
    _owned = True


def may_be_nicer() -> bool:
    """Whether the calling thread may be made nicer: this process is our own, or the system lets us take it back."""
    return _owned or niceness_can_be_lowered()


def niceness_can_be_lowered() -> bool:
    """Whether a thread that has been made nicer can be put back; tried in one that ends at once."""
    if sys.platform != "linux":  # elsewhere niceness is of the whole process
        return False
    lowered: list[bool] = []

    def lower() -> None:
        before = niceness()
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, before + 1)
            os.setpriority(os.PRIO_PROCESS, 0, before)
            lowered.append(niceness() == before)

    thread = threading.Thread(target=lower)
    thread.start()
    thread.join()
    return lowered == [True]
