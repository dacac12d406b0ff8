"""The tasks of a run, as plain data: how many there are, how they are sampled, and how they are evaluated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from offbeat.core.fields import Bound, Natural

TaskCount = Annotated[int, Bound(1, 1_000_000)]
"""Number of tasks, or of episodes in a task. The limit is for files of a run, which others may have written."""


@dataclass(frozen=True)
class TaskSample:
    """The tasks that a run samples from its env: first those of training, then those of tests.

    A task is known by its number, from 0. The tasks themselves are never stored: who needs them samples them again
    from the same seed.
    """

    seed: Natural
    """Seed of the run."""
    train: TaskCount
    """Number of tasks that are trained on."""
    test: TaskCount
    """Number of tasks that only evaluations use."""

    @property
    def train_tasks(self) -> range:
        """The numbers of the tasks that are trained on."""
        return range(self.train)

    @property
    def test_tasks(self) -> range:
        """The numbers of the tasks that only evaluations use."""
        return range(self.train, self.train + self.test)


@dataclass(frozen=True)
class Trials:
    """How a policy that infers its task is evaluated: by a trial in each test task.

    A trial has `prior_episodes` episodes with the task variable drawn from the prior, anew in each episode. Their
    transitions are the context. In one more episode, the last one, the task variable is drawn from the posterior given
    this context. The return of the last episode is the score of the trial.
    """

    tasks: TaskSample
    prior_episodes: TaskCount
    """Episodes before the last one."""

    @property
    def episodes(self) -> int:
        """Number of episodes in a trial."""
        return self.prior_episodes + 1
