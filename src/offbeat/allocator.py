"""Lets glibc's malloc keep memory that was freed, for the next allocation.

By default it gives blocks of some MB back to the system at once. Networks on images allocate hundreds of MB in each
update and free them again, and the system would have to map and to clear every page of them anew: a quarter to two
fifths of the time of an update (benchmarks/results/images.md). Other C libraries are left as they are.
"""

from __future__ import annotations

import ctypes
import os

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Names of mallopt(3)."""
_MOST = 2**31 - 1
"""Bytes: the most that mallopt takes."""
_BLOCKS = (_MOST, 32 * 2**20)
"""Largest block that is kept; older versions refuse more than the second."""
_OF_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> bool:
    """Let this process keep what it frees, and return whether it does; what the environment says of it wins."""
    if any(name in os.environ for name in _OF_USER):
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        return False
    # Blocks first: a trim threshold alone would fix theirs at 128 kB, and more would be given back than before.
    blocks = any(libc.mallopt(_M_MMAP_THRESHOLD, size) for size in _BLOCKS)
    return blocks and bool(libc.mallopt(_M_TRIM_THRESHOLD, _MOST))


def return_freed_memory() -> None:
    """Give back to the system what this process has freed and kept."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
