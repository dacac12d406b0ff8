"""The board: counters that workers share with the process that waits for them, and bells that wake a sleeping process.

Each counter has one writer and is an aligned word, so a reader sees either the old value or the new value. There is no
shared lock, so no process can die while it holds one. A writer sets the counter before it rings a bell; a reader
empties the bell before it reads the counters again. So no ring is lost.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.closing import all_or_closed
from offbeat.core.memory_shape import Slab
from offbeat.core.types import Tree
from offbeat.runtime.deadline import ROW, Deadline, WorkerDeadline

POLL_INTERVAL_S = 0.1
"""Maximum duration of a sleep. After it the counters are read again, and the workers are checked."""
LINE = 8
"""Words in a cache line. The counters of different writers are on different cache lines."""


class Bell:
    """Wakes one sleeping thread or process. Several may ring it, also before the sleep starts."""

    def __init__(self, reader: int, writer: int) -> None:
        """Use the two ends of a pipe; -1 for an end that this process does not use."""
        self.reader, self.writer = reader, writer

    @classmethod
    def make(cls) -> Bell:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        return cls(reader, writer)

    @classmethod
    def make_several(cls, count: int) -> list[Bell]:
        """Return new bells; if one of them cannot be made, none is left open."""
        return all_or_closed(cls.make() for _ in range(count))

    def ring(self) -> None:
        # A full pipe wakes the reader too. A reader that has died is detected elsewhere.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self.writer, b"!")

    def sleep(self, seconds: float) -> None:
        """Sleep until the bell is rung, for at most `seconds`."""
        poll = select.poll()
        poll.register(self.reader, select.POLLIN)
        if poll.poll(1000 * seconds):
            with contextlib.suppress(BlockingIOError):
                os.read(self.reader, 65536)

    def close(self) -> None:
        for end in (self.reader, self.writer):
            if end >= 0:
                os.close(end)


class SharedBell:
    """A bell that wakes several threads of one process. One of them sleeps on it, and then wakes the others."""

    def __init__(self, bell: Bell) -> None:
        """Share a bell on which no other thread sleeps."""
        self._bell, self._woken, self._is_listening = bell, threading.Condition(), False

    def sleep(self, seconds: float, unless: Callable[[], bool]) -> None:
        """Sleep until the bell is rung, for at most `seconds`; not at all if `unless()`.

        A thread that rings makes `unless()` true first. Otherwise another thread may take its ring before this one
        sleeps.
        """
        with self._woken:
            if unless():
                return
            if self._is_listening:
                self._woken.wait(seconds)
                return
            self._is_listening = True
        try:
            self._bell.sleep(seconds)
        finally:
            with self._woken:
                self._is_listening = False
                self._woken.notify_all()


def board_slabs(workers: int) -> list[Slab]:
    """Return the arrays that every board has."""
    return [
        ("board/closed", (LINE,), "int64"),
        ("board/deadline", (workers, LINE), "float64"),
        ("board/next", (workers, LINE), "int64"),
    ]


class Board:
    """Base of all boards."""

    def __init__(self, arrays: Tree, workers: int) -> None:
        """Make a board on the arrays of an arena with `board_slabs` for this number of workers."""
        self.workers = workers
        """Number of processes or threads with a row on this board: actors, learners, inference workers, or workers of
        `hogwild`."""
        self.closed = arrays["board/closed"]
        """Not 0 when the run is ending. Written by the process that waits for the workers."""
        self.deadlines = [Deadline(row[:ROW]) for row in arrays["board/deadline"]]
        """The deadline of each worker."""
        self.next: Sequence[NDArray[np.int64]] = list(arrays["board/next"])
        """For each worker, first the number of its first ticket, learning step, batch or evaluation that is not
        finished. Written by the worker."""

    def worker_deadline(self, worker: int, runtime: RuntimeConfig) -> WorkerDeadline:
        """Return what sets the deadline of a worker, in this worker."""
        return WorkerDeadline(self.closed, self.deadlines[worker], runtime)

    def close(self, bells: Iterable[Bell]) -> None:
        """Note that the run is ending, and wake the workers that sleep on these bells."""
        self.closed[0] = 1
        for bell in bells:
            bell.ring()
