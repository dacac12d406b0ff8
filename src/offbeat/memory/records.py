"""Records that one process writes and others read: replaced as a whole, and never read torn, without a lock.

Each writer has two places. It writes the one that nobody is told of, then tells its number by one store: a writer that
dies at any moment leaves its last record whole.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from offbeat.core.memory_shape import Slab
from offbeat.core.types import Tree

F64 = NDArray[np.float64]


class Records:
    """One record of float64 numbers for each writer; counts in it are exact up to 2^53."""

    def __init__(self, name: str, arrays: Tree) -> None:
        """Address the arrays of an arena that holds `record_slabs` of the same name."""
        self._places, self._numbers = arrays[f"{name}/places"], arrays[f"{name}/numbers"]

    def write(self, writer: int, record: F64) -> None:
        """Replace a writer's record [size]; there is one process that writes it."""
        number = int(self._numbers[writer, 0]) + 1
        self._places[writer, number % 2] = record
        self._numbers[writer, 0] = number

    def read(self, writer: int) -> F64:
        """Return a copy of a writer's last record [size]: zeros where it has not written one."""
        while True:
            number = int(self._numbers[writer, 0])
            record: F64 = self._places[writer, number % 2].copy()
            if int(self._numbers[writer, 0]) == number:  # else its place may have been written meanwhile
                return record

    def written(self, writer: int) -> bool:
        """Whether a writer has written a record."""
        return bool(self._numbers[writer, 0])


def record_slabs(name: str, writers: int, size: int) -> list[Slab]:
    """Return what the arena of such records consists of; a number has a cache line of its own."""
    return [(f"{name}/places", (writers, 2, size), "float64"), (f"{name}/numbers", (writers, 8), "int64")]
