"""Lets glibc's malloc reuse freed memory instead of returning it to the system.

By default malloc returns large blocks at once. Networks on images allocate and free hundreds of MB in each update, and
the system would map and clear these pages again: 28 to 44 % of the time of an update (benchmarks/results/images.md).
Other C libraries are not changed.
"""

from __future__ import annotations

import ctypes
import os

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""
_MAX = 2**31 - 1
"""Maximum value of mallopt, in bytes."""
_DEFAULT_LARGEST = 32 * 2**20
"""Largest block, in bytes, that glibc reuses by default after one of that size was freed."""
_BLOCKS = (_MAX, _DEFAULT_LARGEST)
"""Thresholds to try, in bytes. Older versions accept only the second one."""
_active = False
"""Whether `keep_freed_memory` has changed this process."""
_USER_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> bool:
    """Let this process reuse the memory that it frees; return whether it does.

    Does nothing if the user has set one of malloc's environment variables.
    """
    if any(name in os.environ for name in _USER_VARIABLES):
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        return False
    global _active  # noqa: PLW0603 - a property of the process
    # Set the block size first: a trim threshold alone would fix it at 128 kB, and more memory would be returned.
    blocks = any(libc.mallopt(_M_MMAP_THRESHOLD, size) for size in _BLOCKS)
    _active = blocks and bool(libc.mallopt(_M_TRIM_THRESHOLD, _MAX))
    return _active


def keeps_freed_memory() -> bool:
    """Whether this process reuses the memory that it frees, by `keep_freed_memory`."""
    return _active


def stop_keeping_memory() -> None:
    """Undo `keep_freed_memory`, and return the freed memory to the system.

    The earlier thresholds of glibc cannot be read. They are set to the values that glibc chooses after a block of 32 MB
    has been freed, and no longer adapt.
    """
    global _active  # noqa: PLW0603 - as above
    if _active:
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _DEFAULT_LARGEST)
        libc.mallopt(_M_TRIM_THRESHOLD, 2 * _DEFAULT_LARGEST)
        return_freed_memory()
        _active = False


def return_freed_memory() -> None:
    """Return the memory that this process has freed to the system."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
