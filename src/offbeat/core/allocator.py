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
_OWN_LARGEST = 32 * 2**20
"""Bytes: the largest block that glibc keeps by itself, once one of that size was freed."""
_BLOCKS = (_MOST, _OWN_LARGEST)
"""Largest block that is kept; older versions refuse more than the second."""
_keeps = False
"""Whether this process keeps what it frees because of us."""
_OF_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> bool:
    """Let this process keep what it frees, and return whether it does; what the environment says of it wins."""
    if any(name in os.environ for name in _OF_USER):
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        return False
    global _keeps  # noqa: PLW0603 - a fact about the process
    # Blocks first: a trim threshold alone would fix theirs at 128 kB, and more would be given back than before.
    blocks = any(libc.mallopt(_M_MMAP_THRESHOLD, size) for size in _BLOCKS)
    _keeps = blocks and bool(libc.mallopt(_M_TRIM_THRESHOLD, _MOST))
    return _keeps


def stop_keeping_memory() -> None:
    """Give back what this process keeps because of `keep_freed_memory`, and let it keep no more than glibc does.

    How glibc was set up before cannot be read. It is left as it sets itself up once a block of 32 MB has been freed,
    but no longer adapts.
    """
    global _keeps  # noqa: PLW0603 - likewise
    if _keeps:
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _OWN_LARGEST)
        libc.mallopt(_M_TRIM_THRESHOLD, 2 * _OWN_LARGEST)
        return_freed_memory()
        _keeps = False


def return_freed_memory() -> None:
    """Give back to the system what this process has freed and kept."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
