"""Restores the state of the caller's process after training, however it ends.

A run changes thread counts, torch's settings for a GPU, cores, niceness, malloc, the module search path and the
environment. The libraries that it imports change filters of warnings and draw random numbers, and an env may change the
working directory. Cores, niceness and the threads of OpenMP and torch are those of a thread; the rest is that of the
process, in which several threads may train. Signal handlers are restored by `runtime/loop/signals.py`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from offbeat.core.files import require_current_folder
from offbeat.core.process.allocator import keeps_freed_memory, stop_keeping_memory
from offbeat.core.process.gpu_numerics import WORKSPACE, GpuNumerics
from offbeat.core.process.import_traces import ImportTraces, restore_environment
from offbeat.core.process.threads import SPINNING, ThreadCounts, niceness, pin, usable_core_numbers

VIDEO_DRIVER = "SDL_VIDEODRIVER"
"""Environment variable that names the driver with which SDL, and so pygame, shows pictures."""
_TASKS = Path("/proc/self/task")
"""Directory of the threads of this process (Linux)."""


class CallerState:
    """The state of the process and of the calling thread at the time of construction; see `caller_state`.

    Args:
        process: the state of the process, if it was saved before, in another thread; None saves it.

    Raises:
        ConfigError: the current folder was deleted.
    """

    def __init__(self, process: ProcessState | None = None) -> None:
        require_current_folder()
        self.process = process or ProcessState()
        self._cores, self._niceness, self._tasks = usable_core_numbers(), niceness(), _tasks()

    def save_library_settings(self) -> None:
        """Save how many threads torch and BLAS use, and how torch computes on a GPU. Call it after the libraries are
        loaded and before their settings change.
        """
        self.process.save_library_settings()

    def restore_folder(self) -> None:
        """Change back to the working directory of the caller."""
        self.process.restore_folder()

    def restore_random(self) -> None:
        """Undo the draws from Python's random numbers that libraries make when they are imported."""
        self.process.imports.undo_draws()

    def restore_scheduling(self, *, of_new_threads: bool) -> None:
        """Restore cores and niceness of this thread; `of_new_threads`: also of those that libraries have started.

        Nothing is restored if this thread still has its own.
        """
        if (usable_core_numbers(), niceness()) == (self._cores, self._niceness):
            return
        for task in (0, *(_tasks() - self._tasks if of_new_threads else ())):
            with suppress(OSError):  # a thread has ended, or this process cannot lower its niceness
                pin(self._cores, task)
                os.setpriority(os.PRIO_PROCESS, task, self._niceness)


class ProcessState:
    """The settings of the whole process at the time of construction."""

    def __init__(self) -> None:
        self._folder = str(Path.cwd())
        self._was_searched = self._folder in sys.path
        self._environment = {name: os.environ.get(name) for name in (*SPINNING, WORKSPACE, VIDEO_DRIVER)}
        self.imports = ImportTraces()
        self._kept_memory = keeps_freed_memory()
        """True in a callback of a run, which goes on to keep it."""
        self._libraries: dict[bool, tuple[ThreadCounts, GpuNumerics]] = {}
        """Whether torch was loaded -> the settings then."""
        self._saving = threading.Lock()

    def save_library_settings(self) -> None:
        """Save how libraries compute. See `CallerState`."""
        self.imports.undo_draws()
        with self._saving:
            if (with_torch := "torch" in sys.modules) not in self._libraries:
                self._libraries[with_torch] = ThreadCounts(), GpuNumerics()

    def restore(self) -> None:
        """Restore the saved state."""
        self.restore_folder()
        self.imports.undo()
        for counts, numerics in reversed(self._libraries.values()):
            counts.restore()
            numerics.restore()
        if not self._was_searched and self._folder in sys.path:
            sys.path.remove(self._folder)
        restore_environment(self._environment)
        if not self._kept_memory:
            stop_keeping_memory()

    def restore_threads(self) -> None:
        """Restore what the calling thread has for itself: how many threads of OpenMP and torch it uses."""
        for counts, _ in reversed(self._libraries.values()):
            counts.restore_of_thread()

    def restore_folder(self) -> None:
        """Change back to the working directory of the caller."""
        with suppress(OSError):  # the folder was deleted
            os.chdir(self._folder)


class _Inside:
    """The threads of this process that are in `caller_state`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.threads = 0
        self.process: ProcessState | None = None
        """The state before the first of these threads."""
        self.this_thread = threading.local()
        """It has the attribute `is_inside` in such a thread."""


_INSIDE = _Inside()


@contextmanager
def caller_state() -> Iterator[CallerState]:
    """Restore the state of this process on exit, also after an exception. Inside, torch's default device is the CPU.

    While several threads are inside, the last that leaves restores the process to how the first one has found it.
    """
    with _cpu_by_default(), _restored() as state:
        yield state


@contextmanager
def _cpu_by_default() -> Iterator[None]:
    """Let the CPU be torch's default device while entered, in this thread: each thread has its own.

    The networks and their inputs are made on the CPU, and what the learner needs is then moved to its device.
    """
    if "torch" not in sys.modules:
        yield
        return
    import torch

    if torch.get_default_device().type == "cpu":  # a context would slow down all calls of torch
        yield
        return
    with torch.device("cpu"):
        yield


@contextmanager
def _restored() -> Iterator[CallerState]:
    if hasattr(_INSIDE.this_thread, "is_inside"):  # such as an evaluation in a callback of a run
        state = CallerState()
        try:
            yield state
        finally:
            state.process.restore()
            state.restore_scheduling(of_new_threads=True)
        return
    state = _enter()
    try:
        yield state
    finally:
        _leave(state)


def _enter() -> CallerState:
    with _INSIDE.lock:
        state = CallerState(_INSIDE.process)
        _INSIDE.process, _INSIDE.this_thread.is_inside = state.process, True
        _INSIDE.threads += 1
    return state


def _leave(state: CallerState) -> None:
    with _INSIDE.lock:
        del _INSIDE.this_thread.is_inside
        _INSIDE.threads -= 1
        if is_last := _INSIDE.threads == 0:
            _INSIDE.process = None
            state.process.restore()
        else:
            state.process.restore_threads()
        state.restore_scheduling(of_new_threads=is_last)


def _tasks() -> set[int]:
    return {int(task.name) for task in _TASKS.iterdir()} if _TASKS.is_dir() else set()
