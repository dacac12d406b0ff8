"""Two threads that divide the work of one update: the calling thread, and a helper that sleeps between updates.

Products in NumPy and torch release Python's global interpreter lock, so two threads with one BLAS thread each use two
cores. The work is always divided into two parts, also for one thread, and the order of sums in each part is fixed. So
the result is the same, bit for bit, with one thread and with two.

A sleeping thread takes about 30 us to wake up on another core. So a part should take a few hundred microseconds, and
there should be few steps.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Literal

import torch

from offbeat.core.process.threads import start_thread, write_blas_memory

Part = Callable[[], None]
Step = tuple[Part, Part]
"""Two parts that run at the same time: the first in the calling thread, the second in the helper."""


class TwoThreadExecutor:
    """Runs steps on one or two threads. An executor must not be called by several threads at the same time.

    BLAS and torch must have one thread each (`threads.set_thread_count`). torch's number of threads is set per thread,
    so the helper sets its own; threads that start later inherit it.

    Raises:
        RunFailed: a thread cannot be started.
    """

    def __init__(self, threads: Literal[1, 2]) -> None:
        self.threads = threads
        self._queues = _Queues()
        self._closed = False
        self._thread: threading.Thread | None = None
        if threads == 2:
            # The thread refers to the queues only, not to the executor. So an executor without other references is
            # deleted, which ends the thread.
            self._thread = threading.Thread(
                target=_run_helper, args=(self._queues,), name="offbeat update helper", daemon=True
            )
            start_thread(self._thread)
            weakref.finalize(self, self._queues.work.put, None)
            write_blas_memory(threads=2)

    def run(self, *steps: Step) -> None:
        """Run all steps in order; a step starts when both parts of the step before have ended.

        An exception of a part is raised here, and no further step starts.

        Raises:
            RuntimeError: the executor is closed.
        """
        if self._closed:
            raise RuntimeError("the executor is closed: make a new one")
        if self._thread is None:
            for first, second in steps:
                first()
                second()
            return
        self._queues.work.put([second for _, second in steps])
        try:
            error = _run_parts([first for first, _ in steps], self._queues.to_helper, self._queues.to_caller)
        except BaseException:  # a signal handler raised during the wait: the two threads are no longer in the same step
            self.close()
            raise
        if error is not None:
            raise error

    def close(self) -> None:
        """Stop the helper after its current part."""
        self._closed = True
        if self._thread is not None:
            self._queues.to_helper.put(_ExecutorClosed())
            self._queues.work.put(None)
            self._thread.join()


class _ExecutorClosed(Exception):
    """The caller has closed the executor: the helper stops."""


class _Queues:
    """The queues between the two threads. Unlike waiting for a lock, waiting for a queue can be interrupted."""

    def __init__(self) -> None:
        self.work: SimpleQueue[list[Part] | None] = SimpleQueue()
        """The parts of the helper in each `run`; None: the helper ends."""
        self.to_helper: SimpleQueue[BaseException | None] = SimpleQueue()
        """After each part of the caller, its exception, or None."""
        self.to_caller: SimpleQueue[BaseException | None] = SimpleQueue()
        """After each part of the helper, its exception, or None."""


def _run_helper(queues: _Queues) -> None:
    """Run the second parts of steps, until the queue `work` has None."""
    torch.set_num_threads(1)
    while (parts := queues.work.get()) is not None:
        _run_parts(parts, queues.to_caller, queues.to_helper)
        del parts  # they may refer to the executor, which could then not be deleted


def _run_parts(
    parts: Sequence[Part], outbox: SimpleQueue[BaseException | None], inbox: SimpleQueue[BaseException | None]
) -> BaseException | None:
    """Run the parts of one thread, and wait for the other thread after each part.

    Stop at the first error of either thread, and return it. If both threads have one, return that of this thread.
    """
    for part in parts:
        error: BaseException | None = None
        try:
            part()
        except BaseException as caught:  # noqa: BLE001  (`run` raises it in the calling thread)
            error = caught
        outbox.put(error)
        other_error = inbox.get()
        if error is not None or other_error is not None:
            return other_error if error is None else error
    return None
