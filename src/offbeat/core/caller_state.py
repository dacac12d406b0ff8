"""Restores the state of the caller's process after training, however it ends.

A run changes thread counts, torch's settings for a GPU, cores, niceness, malloc, the module search path and the
environment. The libraries that it imports change filters of warnings and draw random numbers, and an env may change the
working directory. Signal handlers are restored by `runtime/signals.py`.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from offbeat.core.allocator import keeps_freed_memory, stop_keeping_memory
from offbeat.core.files import require_current_folder
from offbeat.core.gpu_numerics import WORKSPACE, GpuNumerics
from offbeat.core.threads import SPINNING, ThreadCounts, niceness, set_affinity, usable_core_numbers

_SET_BY_IMPORTS = ("PYGAME_HIDE_SUPPORT_PROMPT",)
"""Environment variables that libraries set when they are imported."""
_TASKS = Path("/proc/self/task")
"""Directory of the threads of this process (Linux)."""


class CallerState:
    """The state of the process at the time of construction; see `caller_state`.

    Raises:
        ConfigError: the current folder was deleted.
    """

    def __init__(self) -> None:
        require_current_folder()
        self._folder = str(Path.cwd())
        self._was_searched = self._folder in sys.path
        self._environment = {name: os.environ.get(name) for name in (*SPINNING, WORKSPACE, *_SET_BY_IMPORTS)}
        self._filters = list(warnings.filters)
        self._random: tuple[Any, ...] | None = random.getstate()
        self._cores, self._niceness, self._tasks = usable_core_numbers(), niceness(), _tasks()
        self._kept_memory = keeps_freed_memory()
        """True in a callback of a run, which goes on to keep it."""
        self._counts: ThreadCounts | None = None
        self._numerics: GpuNumerics | None = None

    def save_library_settings(self) -> None:
        """Save how many threads torch and BLAS use, and how torch computes on a GPU. Call it after the libraries are
        loaded and before their settings change.
        """
        self.restore_random()
        self._counts, self._numerics = self._counts or ThreadCounts(), self._numerics or GpuNumerics()

    def restore(self) -> None:
        """Restore the saved state."""
        self.restore_random()
        self.restore_folder()
        if warnings.filters != self._filters:  # libraries add filters when they are imported
            warnings.resetwarnings()
            warnings.filters[:] = self._filters  # type: ignore[index]
        if self._counts is not None:
            self._counts.restore()
        if self._numerics is not None:
            self._numerics.restore()
        if (usable_core_numbers(), niceness()) != (self._cores, self._niceness):
            self._restore_scheduling()
        if not self._was_searched and self._folder in sys.path:
            sys.path.remove(self._folder)
        for name, value in self._environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if not self._kept_memory:
            stop_keeping_memory()

    def restore_folder(self) -> None:
        """Change back to the working directory of the caller."""
        with suppress(OSError):  # the folder was deleted
            os.chdir(self._folder)

    def restore_random(self) -> None:
        """Undo the draws from Python's random numbers that libraries make when they are imported.

        Later draws are those of the user's envs and callbacks.
        """
        if self._random is not None:
            random.setstate(self._random)
            self._random = None

    def _restore_scheduling(self) -> None:
        """Restore cores and niceness of this thread, and of threads that libraries have started since."""
        for task in (0, *(_tasks() - self._tasks)):
            with suppress(OSError):  # a thread has ended, or this process cannot lower its niceness
                set_affinity(self._cores, None, task)
                os.setpriority(os.PRIO_PROCESS, task, self._niceness)


@contextmanager
def caller_state() -> Iterator[CallerState]:
    """Restore the state of this process on exit, also after an exception."""
    state = CallerState()
    try:
        yield state
    finally:
        state.restore()


def _tasks() -> set[int]:
    return {int(task.name) for task in _TASKS.iterdir()} if _TASKS.is_dir() else set()


# --- niceness -----------------------------------------------------------------------------------------------

_owned = False
"""Whether this process only runs offbeat."""


def declare_own_process() -> None:
    """Declare that this process only runs offbeat, so its niceness need not be restored."""
    global _owned  # noqa: PLW0603 - a fact about the process
    _owned = True


def may_raise_niceness() -> bool:
    """Whether the niceness of the calling thread may be raised: it only runs offbeat, or can lower it again."""
    return _owned or niceness_can_be_lowered()


def niceness_can_be_lowered() -> bool:
    """Whether a raised niceness can be lowered again. A temporary thread tries it."""
    if sys.platform != "linux":  # on other systems the niceness is that of the whole process
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
