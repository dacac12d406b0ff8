"""Learning steps of several policies, one after another or side by side in threads.

The learners of different policies share no arrays, so the result does not depend on the order in which they run.
PyTorch and NumPy release Python's global interpreter lock in their arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from time import perf_counter as clock

from offbeat.metrics.timings import Timings
from offbeat.workers.feed import Commits
from offbeat.workers.learner import Learned, Learner


class LearnerPool:
    """The learners of all policies of a run."""

    failed = False
    """Whether a learner was lost in a process of its own: here there are none."""

    def __init__(
        self, learners: Sequence[Learner], timings: Timings, workers: int, commits: Commits | None = None
    ) -> None:
        """Make a pool.

        Args:
            learners: in the order of the policies.
            timings: those of the learner's process. With several workers each learner has its own, and theirs are
                added here in proportion, so that the sum is the time that has passed.
            workers: number of threads that learn at the same time.
            commits: waits for tickets in the loaders' threads; None: nothing is loaded ahead.
        """
        self._learners, self._timings = tuple(learners), timings
        self._threads = ThreadPoolExecutor(workers, "offbeat learner") if workers > 1 else None
        self._own = [Timings() for _ in learners]
        if self._threads is not None:
            for learner, own in zip(learners, self._own, strict=True):
                learner.timings = own
        if commits is not None:
            for learner in learners:
                learner.feed.load_ahead(commits)

    def start(self, step: int) -> None:
        """Do nothing: the learners need no preparation for `step`, their first learning step."""

    def watch(self) -> None:
        """Do nothing: the learners have no processes of their own."""

    def learn(self, step: int, progress: float) -> list[Learned]:
        """Make learning step `step` of each policy; return the results in the order of the policies.

        If learners fail, the others finish the step first; then the error of the first policy that failed is raised.
        """
        if self._threads is None:
            return [learner.learn(step, progress) for learner in self._learners]
        started = clock()
        futures = [self._threads.submit(learner.learn, step, progress) for learner in self._learners]
        wait(futures)
        self._add_timings(clock() - started)
        return [future.result() for future in futures]

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
            self._threads.shutdown()
