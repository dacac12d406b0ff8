"""The tasks of a run, as plain data: how many there are, and the seed that they are sampled with."""

from __future__ import annotations

from dataclasses import dataclass

from offbeat.core.fields import Count, Natural


@dataclass(frozen=True)
class TaskSample:
    """The tasks that a run samples from its env: first those of training, then those of tests.

    A task is known by its number, from 0. The tasks themselves are never stored: who needs them samples them again
    from the same seed.
    """

    seed: Natural
    """Seed of the run."""
    train: Count
    """Number of tasks that are trained on."""
    test: Count
    """Number of tasks that only evaluations use."""

    @property
    def train_tasks(self) -> range:
        """The numbers of the tasks that are trained on."""
        return range(self.train)

    @property
    def test_tasks(self) -> range:
        """The numbers of the tasks that only evaluations use."""
        return range(self.train, self.train + self.test)
