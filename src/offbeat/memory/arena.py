"""Named arrays in one block of memory, private or shared between processes.

A `Slab` describes one array: (name, shape, dtype).

Shared memory is anonymous: a file without a name, whose descriptor child processes inherit. So the memory is freed in
any case when the run's processes have ended.
"""

from __future__ import annotations

import errno
import gc
import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from offbeat.core.closing import closed_on_error
from offbeat.core.errors import ConfigError
from offbeat.core.files import remedy_for
from offbeat.core.memory_shape import Slab
from offbeat.core.process.allocator import return_freed_memory
from offbeat.core.types import Tree

ALIGNMENT = 64
"""Alignment of arrays in bytes: a cache line, so that two arrays never share one."""
_HUGE_FROM = 2**22
"""Least size in bytes of a block that has huge pages, as in NumPy."""


def arena_bytes(slabs: Iterable[Slab]) -> int:
    """Return the total size of the arrays in bytes."""
    return sum(_aligned(shape, dtype) for _, shape, dtype in slabs)


def slab_spans(slabs: Iterable[Slab]) -> Iterator[tuple[Slab, slice]]:
    """Yield each slab with its byte range in an aligned block."""
    offset = 0
    for slab in slabs:
        _, shape, dtype = slab
        yield slab, slice(offset, offset + prod(shape) * np.dtype(dtype).itemsize)
        offset += _aligned(shape, dtype)


def private_arena(slabs: Iterable[Slab]) -> Tree:
    """Return zeroed arrays by name, in memory of this process only.

    The memory does not come from malloc, which would have to write zeros to memory that it reuses. So a page occupies
    memory from its first write on, and all pages are freed with the last array, also while malloc keeps freed memory.

    Raises:
        ConfigError: the system refuses the memory.
    """
    slabs = tuple(slabs)
    with _refusal_explained("memory", slabs):
        block = mmap.mmap(-1, max(ALIGNMENT, arena_bytes(slabs)), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    _allow_huge_pages(block)
    return _arrays_in(slabs, np.frombuffer(block, np.uint8))


def _allow_huge_pages(block: mmap.mmap) -> None:
    """Let a large block have huge pages, as those of `np.zeros` have: rows are then gathered in less time."""
    if len(block) >= _HUGE_FROM and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # the kernel has no huge pages
            block.madvise(mmap.MADV_HUGEPAGE)


class SharedArena:
    """Zeroed arrays in memory that other processes can map with `attach`."""

    def __init__(self, slabs: Iterable[Slab]) -> None:
        """Reserve the memory.

        Raises:
            ConfigError: the system refuses it. A limit of file sizes also applies to it.
        """
        self.slabs = tuple(slabs)
        with _refusal_explained("shared memory", self.slabs):
            self.fd = _nameless_file()
            """File descriptor for child processes (`pass_fds`). It stays open for processes that start later."""
            with closed_on_error([self]):
                os.ftruncate(self.fd, max(ALIGNMENT, arena_bytes(self.slabs)))
                self.arrays = attach(self.fd, self.slabs)

    def close(self) -> None:
        """Close the descriptor. The memory is freed with the last array that uses it."""
        os.close(self.fd)


def attach(fd: int, slabs: Iterable[Slab]) -> Tree:
    """Return the arrays of a `SharedArena` with the same slabs, which may be of another process.

    Raises:
        ConfigError: the system refuses to map the memory.
    """
    slabs = tuple(slabs)
    with _refusal_explained("shared memory", slabs):
        block = mmap.mmap(fd, max(ALIGNMENT, arena_bytes(slabs)))  # page-aligned
    return _arrays_in(slabs, np.frombuffer(block, np.uint8))


_LIMITS = (errno.ENOMEM, errno.EFBIG, errno.EMFILE)
"""Errors of the system that mean a limit: of memory or address space, of file sizes, of open files."""


@contextmanager
def _refusal_explained(memory: str, slabs: Sequence[Slab]) -> Iterator[None]:
    """Raise ConfigError, with a remedy, if a limit of the system does not allow the memory of arrays in this block."""
    try:
        yield
    except (MemoryError, OSError) as error:
        refusal = error if isinstance(error, OSError) else OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        if refusal.errno not in _LIMITS:
            raise
        size = _size(arena_bytes(slabs))
        raise ConfigError(
            f"the system refuses {size} of {memory} for arrays ({refusal.strerror}): {remedy_for(refusal)}"
        ) from error


def require_bytes(needed: int, purpose: str, remedy: str) -> None:
    """Raise ConfigError if more memory is needed than is free.

    Args:
        needed: Number of bytes.
        purpose: Start of the message: names the arrays, and ends with a verb, for example 'the weights need'.
        remedy: End of the message: the action that the user can take.
    """
    free = usable_memory()
    if free is not None and needed > free:
        gc.collect()  # the arrays of an earlier run in this process may be in reference cycles
        free = usable_memory()
    if free is not None and needed > free:
        raise ConfigError(f"{purpose} {_size(needed)}, but only {_size(free)} of memory are free: {remedy}")


def usable_memory() -> int | None:
    """Return the free memory for this process in bytes; None if it is not known.

    This is the free memory of the machine or, if that is less, of the container (cgroup v2).
    """
    return_freed_memory()  # memory of an earlier run in this process
    meminfo, limit = Path("/proc/meminfo"), _CGROUP / "memory.max"
    if not meminfo.is_file():
        return None
    lines = dict(line.split(":", 1) for line in meminfo.read_text(encoding="utf-8").splitlines())
    free = int(lines["MemAvailable"].split()[0]) * 1024
    if limit.is_file() and (allowed := limit.read_text(encoding="utf-8").strip()) != "max":
        free = min(free, max(0, int(allowed) - _used_in_container()))
    return free


_CGROUP = Path("/sys/fs/cgroup")


def _used_in_container() -> int:
    """Return the memory that the container uses in bytes, without file caches that can be dropped."""
    statistics = dict(line.split() for line in (_CGROUP / "memory.stat").read_text(encoding="utf-8").splitlines())
    return int((_CGROUP / "memory.current").read_text(encoding="utf-8")) - int(statistics.get("inactive_file", 0))


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("offbeat")
    with tempfile.TemporaryFile() as file:  # the file has no name, or is unlinked at once
        return os.dup(file.fileno())


def _arrays_in(slabs: Iterable[Slab], block: NDArray[np.uint8]) -> Tree:
    return {name: block[span].view(dtype).reshape(shape) for (name, shape, dtype), span in slab_spans(slabs)}


def _aligned(shape: tuple[int, ...], dtype: str) -> int:
    return -(-prod(shape) * np.dtype(dtype).itemsize // ALIGNMENT) * ALIGNMENT


def _size(count: int) -> str:
    for unit, scale in (("GB", 10**9), ("MB", 10**6)):
        if count >= scale:
            return f"{count / scale:,.1f} {unit}"
    return f"{count:,} bytes"
