"""Named arrays on one block of memory, private or shared between processes, laid out from (name, shape, dtype).

Shared memory is anonymous: a file without a name, which children are handed as a descriptor. However a run ends,
nothing of it is left behind.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from offbeat.core.allocator import return_freed_memory
from offbeat.core.errors import ConfigError
from offbeat.core.memory_shape import Slab
from offbeat.core.types import Tree

ALIGNMENT = 64
"""Bytes: a cache line, so that no two arrays share one."""


def arena_bytes(slabs: Iterable[Slab]) -> int:
    """Return the bytes that the arrays take together."""
    return sum(_aligned(shape, dtype) for _, shape, dtype in slabs)


def places(slabs: Iterable[Slab]) -> Iterator[tuple[Slab, slice]]:
    """Yield each array, and the bytes of an aligned block that it lies on."""
    offset = 0
    for slab in slabs:
        _, shape, dtype = slab
        yield slab, slice(offset, offset + prod(shape) * np.dtype(dtype).itemsize)
        offset += _aligned(shape, dtype)


def private_arena(slabs: Iterable[Slab]) -> Tree:
    """Return zeroed arrays by name, on memory of this process alone."""
    slabs = list(slabs)
    block = np.zeros(arena_bytes(slabs) + ALIGNMENT, np.uint8)
    return _laid_out(slabs, block[-block.ctypes.data % ALIGNMENT :])


class SharedArena:
    """Zeroed arrays on memory that other processes can map too, by `attach`."""

    def __init__(self, slabs: Iterable[Slab]) -> None:
        self.slabs = tuple(slabs)
        self.fd = _nameless_file()
        """Hand it to children (`pass_fds`); it stays open for those that are started later."""
        os.ftruncate(self.fd, max(ALIGNMENT, arena_bytes(self.slabs)))
        self.arrays = attach(self.fd, self.slabs)

    def close(self) -> None:
        """Close the descriptor; the memory goes with the last array that lies on it."""
        os.close(self.fd)


def attach(fd: int, slabs: Iterable[Slab]) -> Tree:
    """Return the arrays of a `SharedArena` that was made, here or elsewhere, from the same slabs."""
    slabs = tuple(slabs)
    block = mmap.mmap(fd, max(ALIGNMENT, arena_bytes(slabs)))  # page-aligned
    return _laid_out(slabs, np.frombuffer(block, np.uint8))


def require_memory(slabs: Iterable[Slab], purpose: str, remedy: str) -> None:
    """Refuse arrays that do not fit into the memory that is left.

    Raises:
        ConfigError: with the numbers and `remedy`.
    """
    require_bytes(arena_bytes(slabs), purpose, remedy)


def require_bytes(needed: int, purpose: str, remedy: str) -> None:
    """Refuse to take more memory than is left.

    Raises:
        ConfigError: with the numbers and `remedy`.
    """
    left = usable_memory()
    if left is not None and needed > left:
        raise ConfigError(f"{purpose} {_size(needed)}, but only {_size(left)} of memory are free: {remedy}")


def usable_memory() -> int | None:
    """Return the bytes of memory that are free for this process, or None where that is not known.

    It is the machine's, or the container's (cgroup v2) where that is less.
    """
    return_freed_memory()  # of an earlier run in this process
    meminfo, limit = Path("/proc/meminfo"), _CGROUP / "memory.max"
    if not meminfo.is_file():
        return None
    lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    free = int(lines["MemAvailable"].split()[0]) * 1024
    if limit.is_file() and (most := limit.read_text().strip()) != "max":
        free = min(free, max(0, int(most) - _used_in_container()))
    return free


_CGROUP = Path("/sys/fs/cgroup")


def _used_in_container() -> int:
    """Return the bytes that the container cannot do without: file caches that can be dropped are left out."""
    statistics = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
    return int((_CGROUP / "memory.current").read_text()) - int(statistics.get("inactive_file", 0))


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("offbeat")
    with tempfile.TemporaryFile() as file:  # has no name from the start, or loses it at once
        return os.dup(file.fileno())


def _laid_out(slabs: Iterable[Slab], block: NDArray[np.uint8]) -> Tree:
    return {name: block[place].view(dtype).reshape(shape) for (name, shape, dtype), place in places(slabs)}


def _aligned(shape: tuple[int, ...], dtype: str) -> int:
    return -(-prod(shape) * np.dtype(dtype).itemsize // ALIGNMENT) * ALIGNMENT


def _size(count: int) -> str:
    for unit, scale in (("GB", 10**9), ("MB", 10**6)):
        if count >= scale:
            return f"{count / scale:,.1f} {unit}"
    return f"{count:,} bytes"
