"""Two threads that divide the work of one update: the calling thread, and a helper that sleeps between updates.

Products in NumPy and torch release Python's lock, so two threads with one BLAS thread each use two cores. The work is
always divided into two parts, also for one thread, and the sums in each part have one order. So the result is the same,
bit for bit, with one thread and with two.

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

Part = Callable[[], None]
Step = tuple[Part, Part]
"""What can be done at the same time: the first part by the caller, the second by the helper."""


class TwoThreadExecutor:
    """One or two threads. Not to be used by several callers at the same time; there may be several executors.

    BLAS and torch must have one thread each (`threads.limit`). The helper sets torch's for itself, as torch counts
    them per thread; threads that start after it have one, too, until they choose otherwise.
    """

    def __init__(self, threads: Literal[1, 2]) -> None:
        self.threads = threads
        self._post = _Post()
        self._closed = False
        self._thread: threading.Thread | None = None
        if threads == 2:
            # The thread knows the post alone: an executor that nobody holds is collected, which ends the thread.
            self._thread = threading.Thread(target=_help, args=(self._post,), name="update-helper", daemon=True)
            self._thread.start()
            weakref.finalize(self, self._post.work.put, None)

    def run(self, *steps: Step) -> None:
        """Do all steps in order, each when both parts of the one before are done.

        What a part raises is raised here; no further step begins.

        Raises:
            RuntimeError: the executor is closed.
        """
        if self._closed:
            raise RuntimeError("this executor is closed")
        if self._thread is None:
            for first, second in steps:
                first()
                second()
            return
        self._post.work.put([second for _, second in steps])
        try:
            error = _take_part([first for first, _ in steps], self._post.to_helper, self._post.to_caller)
        except BaseException:  # a signal's handler raised while we waited: the two are no longer in step
            self.close()
            raise
        if error is not None:
            raise error

    def close(self) -> None:
        """Stop the helper after its current part."""
        self._closed = True
        if self._thread is not None:
            self._post.to_helper.put(ExchangeClosed())
            self._post.work.put(None)
            self._thread.join()


class ExchangeClosed(Exception):
    """The other thread has left the exchange."""


class _Post:
    """The queues between the two threads. Unlike a lock, a queue can be interrupted and can pass on exceptions."""

    def __init__(self) -> None:
        self.work: SimpleQueue[list[Part] | None] = SimpleQueue()
        self.to_helper: SimpleQueue[BaseException | None] = SimpleQueue()
        self.to_caller: SimpleQueue[BaseException | None] = SimpleQueue()


def _help(post: _Post) -> None:
    """Do the second parts, until there is None."""
    torch.set_num_threads(1)
    while (parts := post.work.get()) is not None:
        _take_part(parts, post.to_caller, post.to_helper)
        del parts  # they hold what they work on, which may hold the executor


def _take_part(
    parts: Sequence[Part], outbox: SimpleQueue[BaseException | None], inbox: SimpleQueue[BaseException | None]
) -> BaseException | None:
    """Run the parts of one thread and wait for the other thread after each; return the first error, own ones first."""
    for part in parts:
        error: BaseException | None = None
        try:
            part()
        except BaseException as caught:  # noqa: BLE001  (is raised by `run`, on whichever side it was caught)
            error = caught
        outbox.put(error)
        others = inbox.get()
        if error is not None or others is not None:
            return others if error is None else error
    return None
