"""How many threads BLAS and torch may use, and on which cores; and that none of them spins while it waits."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from threadpoolctl import threadpool_info, threadpool_limits


def forbid_spinning() -> None:
    """Tell OpenMP to sleep while it waits. Call it before torch is imported; what the user has set wins."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("KMP_BLOCKTIME", "0")


def blas_kernels() -> str:
    """Return the name of the kernels that OpenBLAS uses in this process; '' where NumPy has another library."""
    architectures = (info.get("architecture", "") for info in threadpool_info() if info["internal_api"] == "openblas")
    return next(architectures, "")


def usable_cores() -> int:
    """Return how many cores this process may run on."""
    return len(usable_core_numbers())


def usable_core_numbers() -> set[int]:
    """Return the numbers of the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def limit(threads: int) -> None:
    """Let BLAS, OpenMP and torch use `threads` threads in this process."""
    import torch

    torch.set_num_threads(threads)
    limit_blas(threads)


def limit_blas(threads: int) -> None:
    """Let BLAS and OpenMP use `threads` threads in this process: enough where only NumPy acts."""
    threadpool_limits(threads)


def place(cores: Iterable[int] | None, nice: int | None) -> None:
    """Let the calling thread, or process, run on these cores alone, and be this nice at least; None changes nothing.

    Nobody can become less nice, but for those with special rights.

    Where a system cannot pin (macOS), cores are left as they are: `config.py` has refused settings that name some.
    """
    if cores is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    if nice is not None:
        os.setpriority(os.PRIO_PROCESS, 0, max(nice, niceness()))


def niceness() -> int:
    """Return how nice the calling thread, or process, is."""
    return os.getpriority(os.PRIO_PROCESS, 0)


def turn(cores: Sequence[int] | None, index: int) -> set[int] | None:
    """Return the core of the index-th worker, of cores that are given out by turns."""
    return {cores[index % len(cores)]} if cores else None
