"""What workers and the process that waits for them share: counters, each with one writer, and bells to wake a sleeper.

Counters are aligned words: a reader sees the old value or the new one. No lock is shared, so nobody can die holding
one. A counter is set before a bell is rung, and the bell is emptied before the counters are read again, so no ring is
lost.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from offbeat.core.memory_shape import Slab
from offbeat.core.types import Tree
from offbeat.runtime.deadline import ROW, Deadline

POLL_INTERVAL_S = 0.1
"""No sleep is longer: who sleeps reads the counters again this often, and looks after its workers."""
LINE = 8
"""Words of a cache line: each worker's counters lie on lines of their own."""


class Bell:
    """Wakes one sleeper. It may be rung by several, and before anybody sleeps."""

    def __init__(self, reader: int, writer: int) -> None:
        """Take over the ends of a pipe; -1 for an end that this side does not use."""
        self.reader, self.writer = reader, writer

    @classmethod
    def make(cls) -> Bell:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        return cls(reader, writer)

    def ring(self) -> None:
        # A full pipe wakes as well as a new byte does, and a reader that has died is found out elsewhere.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self.writer, b"!")

    def sleep(self, seconds: float) -> None:
        """Return when the bell has been rung, at the latest after `seconds`."""
        sleeper = select.poll()
        sleeper.register(self.reader, select.POLLIN)
        if sleeper.poll(1000 * seconds):
            with contextlib.suppress(BlockingIOError):
                os.read(self.reader, 65536)

    def close(self) -> None:
        for end in (self.reader, self.writer):
            if end >= 0:
                os.close(end)


def board_slabs(workers: int) -> list[Slab]:
    """Return what the arena of any board consists of."""
    return [("board/closed", (LINE,), "int64"), ("board/deadline", (workers, LINE), "float64")]


class Board:
    """What every board has."""

    def __init__(self, arrays: Tree, workers: int) -> None:
        """Address the arrays of an arena that holds the slabs of the same number of workers."""
        self.workers = workers
        self.closed = arrays["board/closed"]
        """Not 0 once the run is ending. Written by the process that waits for the workers."""
        self.deadlines = [Deadline(row[:ROW]) for row in arrays["board/deadline"]]
        """By when each worker must make progress."""

    @property
    def next(self) -> Sequence[NDArray[np.int64]]:
        """Each worker's first piece of work that is not done, [1]: a ticket, a learning step, an evaluation."""
        raise NotImplementedError
