"""How many threads BLAS and torch may use, set explicitly; and that none of them spins while it waits."""

from __future__ import annotations

import os

from threadpoolctl import threadpool_limits


def forbid_spinning() -> None:
    """Tell OpenMP to sleep while it waits. Call it before torch is imported; what the user has set wins."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("KMP_BLOCKTIME", "0")


def usable_cores() -> int:
    """Return the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def limit(threads: int) -> None:
    """Let BLAS, OpenMP and torch use `threads` threads in this process."""
    import torch

    torch.set_num_threads(threads)
    limit_blas(threads)


def limit_blas(threads: int) -> None:
    """Let BLAS and OpenMP use `threads` threads in this process: enough where only NumPy acts."""
    threadpool_limits(threads)
