"""Threads: how many BLAS and torch use, on which cores, with which niceness, and without spinning while they wait."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING

from threadpoolctl import LibController, ThreadpoolController

from offbeat.core.errors import RunFailed

if TYPE_CHECKING:  # commands that need no arrays do not load NumPy
    from offbeat.core.types import F32

SPINNING = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}
"""Environment variables that stop OpenMP threads from spinning. OpenMP reads them when it is loaded."""
NICENESS_INCREASE = 10
"""Actors have a niceness higher than the learner's by this, so the learner gets a core without waiting (see
docs/concepts/why-fast.md)."""
CLOSE_S = 2.0
"""Seconds that threads get to end. A thread that hangs is left running: threads cannot be killed."""


def forbid_spinning() -> None:
    """Let OpenMP threads sleep while they wait. Call it before torch is imported. The user's settings are kept."""
    for name, value in SPINNING.items():
        os.environ.setdefault(name, value)


@cache
def blas_kernels() -> str:
    """Return the name of the kernels that OpenBLAS uses in this process; '' if NumPy uses another library."""
    libraries = ThreadpoolController().info()
    architectures = (info.get("architecture", "") for info in libraries if info["internal_api"] == "openblas")
    return next(architectures, "")


def usable_cores() -> int:
    """Return how many cores this process may run on."""
    return len(usable_core_numbers())


def usable_core_numbers() -> set[int]:
    """Return the numbers of the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def start_thread(thread: Thread) -> None:
    """Start a thread of a run.

    Raises:
        RunFailed: the system has no more threads for this user.
    """
    try:
        thread.start()
    except RuntimeError as error:
        raise RunFailed(
            f"the thread {thread.name!r} cannot be started ({error}): raise the limit of processes, which counts "
            "threads too (`ulimit -u`)"
        ) from error


def join_all(threads: Iterable[Thread]) -> None:
    """Wait until all threads that were started have ended, for at most `CLOSE_S` in total."""
    deadline = monotonic() + CLOSE_S
    for thread in threads:
        if thread.ident is not None:
            thread.join(max(0.0, deadline - monotonic()))


def set_thread_count(threads: int) -> None:
    """Let BLAS, OpenMP and torch use `threads` threads in this process."""
    import torch

    torch.set_num_threads(threads)
    set_blas_thread_count(threads)


def set_blas_thread_count(threads: int) -> None:
    """Let BLAS and OpenMP use `threads` threads in this process: enough in processes without torch."""
    ThreadpoolController().limit(limits=threads)
    write_blas_memory()


def write_blas_memory(threads: int = 1) -> None:
    """Let NumPy's BLAS write the memory that it has for products, so that products of wide layers are fast.

    OpenBLAS copies blocks of both matrices into memory of its own, which it takes from the system at its first product.
    Its kernels prefetch beyond the end of a block. If the page there was never written, the processor looks for it in
    vain, each time anew: a product can take three times as long (benchmarks/results/blas-memory.md). One product of
    large matrices writes these pages.

    Args:
        threads: number of threads that compute products. OpenBLAS has such memory for each that does so at the same
            time, so at most twice as many threads as cores write it.

    Raises:
        RunFailed: a thread cannot be started.
    """
    threads = min(threads, 2 * usable_cores())
    times = 1 if threads == 1 else 4  # long enough that all compute at the same time
    others = [Thread(target=_multiply, args=(times,), name="offbeat BLAS memory") for _ in range(threads - 1)]
    for thread in others:
        start_thread(thread)
    _multiply(times)
    for thread in others:
        thread.join()


def large_matrices() -> tuple[F32, F32]:
    """Return two matrices whose product has blocks as large as most kernels allow: it takes 1 to 5 ms, and 1 MB."""
    import numpy as np

    return np.zeros((64, 640), np.float32), np.zeros((640, 1024), np.float32)


def _multiply(times: int) -> None:
    a, b = large_matrices()
    for _ in range(times):
        a @ b


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """While entered, torch uses one thread in this thread. Nothing happens if torch is not loaded.

    A thread that uses torch for the first time meanwhile keeps one thread: torch gives new threads the number that was
    set last.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class ThreadCounts:
    """The number of threads that torch, BLAS and OpenMP use in this process at the time of construction."""

    def __init__(self) -> None:
        torch = sys.modules.get("torch")
        self._torch: int | None = torch.get_num_threads() if torch else None
        libraries = ThreadpoolController().lib_controllers
        self._libraries = {library.filepath: library.num_threads for library in libraries}
        self._kinds = {library.user_api: library.num_threads for library in libraries}

    def restore(self) -> None:
        """Restore these numbers. A library that was loaded since then gets the number of another one of its kind."""
        self._restore(ThreadpoolController().lib_controllers)

    def restore_of_thread(self) -> None:
        """Restore those numbers that each thread has for itself: of OpenMP and torch, not of BLAS."""
        self._restore(ThreadpoolController().select(user_api="openmp").lib_controllers)

    def _restore(self, libraries: Iterable[LibController]) -> None:
        for library in libraries:
            count = self._libraries.get(library.filepath, self._kinds.get(library.user_api))
            if count is not None and count != library.num_threads:
                library.set_num_threads(count)
        if self._torch is not None and sys.modules["torch"].get_num_threads() != self._torch:
            sys.modules["torch"].set_num_threads(self._torch)


def pin(cores: Iterable[int] | None, task: int = 0) -> None:
    """Restrict a thread or process to some cores.

    Args:
        cores: numbers of the cores; None does not restrict it. Systems that cannot pin threads (macOS) ignore it.
        task: id of the thread; 0 is the calling thread.
    """
    if cores is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(task, cores)


def raise_niceness(nice: int | None) -> None:
    """Raise the niceness of the calling thread to at least this one. Only privileged processes can lower it again."""
    if nice is not None:
        os.setpriority(os.PRIO_PROCESS, 0, max(nice, niceness()))


def niceness() -> int:
    """Return the niceness of the calling thread (Linux) or process."""
    return os.getpriority(os.PRIO_PROCESS, 0)


def higher_niceness() -> int:
    """Return a niceness above that of the calling thread, for work that waits while this thread needs the core."""
    return min(19, niceness() + NICENESS_INCREASE)


_owned = False
"""Whether this process only runs offbeat."""


def declare_own_process() -> None:
    """Declare that this process only runs offbeat, so its niceness and garbage collection need not be restored."""
    global _owned  # noqa: PLW0603 - a fact about the process
    _owned = True


def is_own_process() -> bool:
    """Whether this process only runs offbeat."""
    return _owned


def may_raise_niceness() -> bool:
    """Whether the niceness of the calling thread may be raised: it only runs offbeat, or can lower it again."""
    return _owned or niceness_can_be_lowered()


def niceness_can_be_lowered() -> bool:
    """Whether a raised niceness can be lowered again. A temporary thread tries it."""
    if sys.platform != "linux":  # on other systems the niceness is that of the whole process
        return False
    lowered: list[bool] = []

    def lower() -> None:
        before = niceness()
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, before + 1)
            os.setpriority(os.PRIO_PROCESS, 0, before)
            lowered.append(niceness() == before)

    thread = Thread(target=lower, name="offbeat niceness")
    start_thread(thread)
    thread.join()
    return lowered == [True]


def waited_for_core_s() -> float:
    """Return the seconds that the calling thread has waited for a core so far, while others ran; 0 if not Linux."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) * 1e-9
    except OSError:
        return 0.0


def core_of(cores: Sequence[int] | None, index: int) -> set[int] | None:
    """Return the core of the index-th worker: cores are assigned to workers in turn."""
    return {cores[index % len(cores)]} if cores else None
