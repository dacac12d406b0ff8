"""Learning steps of several policies, one after another or side by side in threads.

The learners of different policies share no arrays, so the result does not depend on the order in which they run.
PyTorch and NumPy release Python's global interpreter lock in their arithmetic.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from functools import partial
from math import inf
from queue import SimpleQueue
from time import perf_counter as clock

from offbeat.core.errors import RunFailed
from offbeat.core.process.threads import join_all, start_thread
from offbeat.metrics.timings import Timings
from offbeat.workers.feed import WaitForCommits
from offbeat.workers.learner import Learned, Learner

POLL_S = 1.0
"""Seconds between two checks whether learners in threads make progress."""


class LearnerPool:
    """The learners of all policies of a run. It has the methods of `LearnerProcesses`, if only as empty ones."""

    def __init__(
        self,
        learners: Mapping[str, Learner],
        timings: Timings,
        workers: int,
        wait_for_commits: WaitForCommits | None = None,
        stall_timeout_s: float = inf,
    ) -> None:
        """Make a pool.

        Args:
            learners: by policy, in the order of the policies.
            timings: those of the learner's process. With several workers each learner has its own, and theirs are
                added here in proportion, so that the sum is the time that has passed.
            workers: number of threads that learn at the same time.
            wait_for_commits: waits for tickets in the loaders' threads; None: nothing is loaded ahead.
            stall_timeout_s: with several workers: seconds without an update after which the learners count as hung.
        """
        self._names, self._learners = tuple(learners), tuple(learners.values())
        self._timings, self._stall_timeout_s = timings, stall_timeout_s
        self._threads = _Threads(workers) if workers > 1 else None
        self._own = [Timings() for _ in learners]
        if self._threads is not None:
            for learner, own in zip(self._learners, self._own, strict=True):
                learner.timings = own
        if wait_for_commits is not None:
            for learner in self._learners:
                learner.feed.load_ahead(wait_for_commits)

    def start(self, step: int) -> None:
        """Do nothing: the learners need no preparation for `step`, their first learning step."""

    def watch(self) -> None:
        """Do nothing: the learners have no processes of their own."""

    def learn(self, step: int, progress: float) -> list[Learned]:
        """Make learning step `step` of each policy; return the results in the order of the policies.

        If learners fail, the others finish the step first; then the error of the first policy that failed is raised.

        Raises:
            RunFailed: learners in threads have made no update in time, or a thread cannot be started.
        """
        if self._threads is None:
            return [learner.learn(step, progress) for learner in self._learners]
        started = clock()
        futures = [self._threads.submit(partial(learner.learn, step, progress)) for learner in self._learners]
        self._wait(futures)
        self._add_timings(clock() - started)
        return [future.result() for future in futures]

    def _wait(self, futures: list[Future[Learned]]) -> None:
        """Wait until all learners have finished the step. The time in which this process is stopped does not count."""
        made, idle_s = -1, 0.0
        while waiting := wait(futures, POLL_S).not_done:
            # A learner that finishes is progress too, so the number of those that have not is subtracted.
            before, made = made, sum(learner.updates_made for learner in self._learners) - len(waiting)
            idle_s = idle_s + POLL_S if made == before else 0.0
            if idle_s >= self._stall_timeout_s:
                names = [name for name, future in zip(self._names, futures, strict=True) if future in waiting]
                raise RunFailed(
                    f"no update was made within {self._stall_timeout_s:g} s (stall_timeout_s), and a thread cannot be "
                    f"killed. These policies have not finished the learning step: {', '.join(names)}. If an update may "
                    "take so long, pass a longer stall_timeout_s"
                )

    def _add_timings(self, passed: float) -> None:
        """Add what the learners have spent, divided so that the sum is the time that has passed."""
        spent = sum(own.seconds["learn"] for own in self._own)
        for own in self._own:
            self._timings.merge({name: seconds * passed / max(spent, passed) for name, seconds in own.seconds.items()})
            own.seconds.clear()

    def close(self) -> None:
        """End the threads, those of loaders too."""
        for learner in self._learners:
            learner.feed.stop_loading()
        if self._threads is not None:
            self._threads.close()


class _Threads:
    """Threads that make learning steps. They start at the first one, with the cores and the niceness of the caller.

    A `ThreadPoolExecutor` would wait without a limit for a thread that hangs, even when the process ends.
    """

    def __init__(self, count: int) -> None:
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        """What to call next; None: the thread that takes it ends."""
        self._threads = [
            threading.Thread(target=self._run, name=f"offbeat learner {index}", daemon=True) for index in range(count)
        ]

    def submit(self, learn: Callable[[], Learned]) -> Future[Learned]:
        """Call a function in a thread.

        Raises:
            RunFailed: a thread cannot be started.
        """
        for thread in self._threads:
            if thread.ident is None:
                start_thread(thread)
        future: Future[Learned] = Future()
        self._tasks.put(partial(_set_result, future, learn))
        return future

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
            del task  # it refers to the result

    def close(self) -> None:
        """End the threads."""
        for _ in self._threads:
            self._tasks.put(None)
        join_all(self._threads)


def _set_result(future: Future[Learned], learn: Callable[[], Learned]) -> None:
    """Call `learn`, and set its result or its error."""
    try:
        future.set_result(learn())
    except BaseException as error:  # noqa: BLE001 - `LearnerPool.learn` raises it
        future.set_exception(error)
