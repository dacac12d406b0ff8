"""Records that one process writes and others read, without locks and without torn reads.

Each writer has two buffers. It writes the one that is not current, and then makes it current by incrementing a counter
with a single store. So the last record stays complete, whenever a writer dies.
"""

from __future__ import annotations

from offbeat.core.memory_shape import Slab
from offbeat.core.types import F64, Tree


class Records:
    """One record of float64 numbers per writer. Counts are exact up to 2^53."""

    def __init__(self, name: str, arrays: Tree) -> None:
        """Use the arrays of an arena with the `record_slabs` of the same name."""
        self._buffers, self._numbers = arrays[f"{name}/buffers"], arrays[f"{name}/numbers"]

    def write(self, writer: int, record: F64) -> None:
        """Replace a writer's record, [size]. Only one process may write it."""
        number = int(self._numbers[writer, 0]) + 1
        self._buffers[writer, number % 2] = record
        self._numbers[writer, 0] = number

    def read(self, writer: int) -> F64:
        """Return a copy of a writer's last record, [size]; zeros before the first one."""
        while True:
            number = int(self._numbers[writer, 0])
            record: F64 = self._buffers[writer, number % 2].copy()
            if int(self._numbers[writer, 0]) == number:  # otherwise the buffer may have been overwritten meanwhile
                return record

    def written(self, writer: int) -> bool:
        """Whether a writer has written a record."""
        return bool(self._numbers[writer, 0])


def record_slabs(name: str, writers: int, size: int) -> list[Slab]:
    """Return the slabs of an arena for `Records` of `size` numbers. Each writer's counter has its own cache line."""
    return [(f"{name}/buffers", (writers, 2, size), "float64"), (f"{name}/numbers", (writers, 8), "int64")]
