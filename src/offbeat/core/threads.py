"""How many threads BLAS and torch may use, and on which cores; and that none of them spins while it waits."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence

from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

SPINNING = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}
"""Environment variables that OpenMP reads when it is loaded."""


def forbid_spinning() -> None:
    """Tell OpenMP to sleep while it waits. Call it before torch is imported; what the user has set wins."""
    for name, value in SPINNING.items():
        os.environ.setdefault(name, value)


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


class ThreadCounts:
    """How many threads torch, BLAS and OpenMP use in this process when this is made."""

    def __init__(self) -> None:
        torch = sys.modules.get("torch")
        self._torch: int | None = torch.get_num_threads() if torch else None
        libraries = ThreadpoolController().lib_controllers
        self._libraries = {library.filepath: library.num_threads for library in libraries}
        self._kinds = {library.user_api: library.num_threads for library in libraries}

    def put_back(self) -> None:
        """Let them use as many again; a library that was loaded since, as many as another of its kind did."""
        for library in ThreadpoolController().lib_controllers:
            count = self._libraries.get(library.filepath, self._kinds.get(library.user_api))
            if count is not None and count != library.num_threads:
                library.set_num_threads(count)
        if self._torch is not None and sys.modules["torch"].get_num_threads() != self._torch:
            sys.modules["torch"].set_num_threads(self._torch)


def place(cores: Iterable[int] | None, nice: int | None, task: int = 0) -> None:
    """Let a thread, or process, run on these cores alone, and be this nice at least; None changes nothing.

    Nobody can become less nice, but for those with special rights. Task 0 is the thread that calls.

    Where a system cannot pin (macOS), cores are left as they are: `config.py` has refused settings that name some.
    """
    if cores is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(task, cores)
    if nice is not None:
        os.setpriority(os.PRIO_PROCESS, task, max(nice, niceness()))


def niceness() -> int:
    """Return how nice the calling thread, or process, is."""
    return os.getpriority(os.PRIO_PROCESS, 0)


def turn(cores: Sequence[int] | None, index: int) -> set[int] | None:
    """Return the core of the index-th worker, of cores that are given out by turns."""
    return {cores[index % len(cores)]} if cores else None
