"""The columns of a policy that infers its task: at the start of a visit they are set to the visit's task.

    rows of a visit:   reset row | prior rows: z ~ N(0, I)              | the other rows: z ~ posterior
                                   a new z in each episode                a new z in each episode

The transitions of the prior rows are the context, from which the posterior is inferred with the weights of the present
ticket. A visit may have several tickets: the context and z are kept between them, and they are in snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offbeat.core.tasks import TaskSample
from offbeat.core.types import Acted, Tree
from offbeat.core.visits import TASK, Visits, task_of_visit
from offbeat.envs.contract import TaskEnvs
from offbeat.models.acting import ActingPolicy
from offbeat.models.task_inference import TaskInference
from offbeat.workers.columns import PolicyColumns
from offbeat.workers.link import PolicyWork


class TaskColumns(PolicyColumns):
    """See the module's docstring."""

    _envs: TaskEnvs
    _policy: ActingPolicy

    def __init__(
        self,
        envs: TaskEnvs,
        policy: ActingPolicy,
        transform_rewards: Callable[[NDArray[np.float32]], NDArray[np.float32]] = lambda rewards: rewards,
        *,
        visits: Visits,
        tasks: TaskSample,
    ) -> None:
        """Act with `policy` in `envs`.

        Args:
            envs: the envs of the columns.
            policy: a policy with a context encoder.
            transform_rewards: see `PolicyColumns`.
            visits: how tickets are divided into visits.
            tasks: the tasks of the run. Those of training are visited, in an order that depends on their seed.
        """
        super().__init__(envs, policy, transform_rewards)
        self._visits, self._tasks = visits, tasks
        self._inference = TaskInference(policy, envs.spec.columns)
        self._visit = -1
        """Number of the present visit; -1 before the first one, and after new episodes were started."""
        self._task = 0
        self._first_row = 0
        """The row of the visit that is row 0 of the present ticket."""
        self._asked_rows = [0] * len(envs.groups)
        """By group: the row of the visit for which actions were asked last."""
        self._starts = np.ones(envs.spec.columns, np.bool_)
        """[N]: whether an episode starts in the next row, so that z is drawn."""

    # --- a visit --------------------------------------------------------------------------------------------

    def reset(self, progress: float, spread: int, random: np.random.Generator) -> None:
        super().reset(progress, spread, random)
        self._visit = -1

    def start_visit(self, ticket: int, progress: float) -> bool:
        visit, part = self._visits.of(ticket)
        self._first_row = part * self._visits.length
        if visit == self._visit:
            return False
        self._visit, self._task = visit, task_of_visit(self._tasks, visit)
        watch, columns = self.calls.watch, len(self._starts)
        watch.enter(resets=True)
        self._envs.set_progress(progress)
        self._following = {
            name: leaf.copy() for name, leaf in self._envs.start_tasks(np.full(columns, self._task)).items()
        }
        watch.leave()
        self._clear_episodes()
        self._starts[:] = True
        self._inference.reset()
        return True

    def start_ticket(self, work: PolicyWork, version: int, progress: float, first: int) -> int:
        length = super().start_ticket(work, version, progress, first)
        self._slot[TASK][:] = self._task
        return length

    # --- a row ----------------------------------------------------------------------------------------------

    def ask(self, row: int, group: int) -> None:
        self._asked_rows[group] = self._first_row + row
        super().ask(row, group)

    def _choose(self, observation: Tree, columns: slice, group: int, random: np.random.Generator) -> Acted:
        self._draw(self._asked_rows[group], columns, random)
        return self._policy.act(self._inference.with_task(observation, columns), random)

    def _draw(self, row: int, columns: slice, random: np.random.Generator) -> None:
        """Draw z for a row of the visit, in the columns in which an episode starts, or all if the prior rows end."""
        where = np.zeros(len(self._starts), np.bool_)
        where[columns] = self._starts[columns] | (row == self._visits.prior_rows)
        self._starts[columns] = False
        if row < self._visits.prior_rows:
            self._inference.sample_prior(random, where)
        else:
            self._inference.sample_posterior(random, where)

    def receive(self, row: int, group: int) -> bool:
        any_ended = super().receive(row, group)
        slot, columns = self._slot, self._envs.groups[group]
        valid = slot["valid"][row, columns]
        self._starts[columns] = ~valid  # the row after a reset row is an episode's first
        if self._first_row + row < self._visits.prior_rows:
            where = np.zeros(len(self._starts), np.bool_)
            where[columns] = valid
            observation, following = ({name: slot[name][r] for name in self._leaves} for r in (row, row + 1))
            self._inference.observe(observation, slot["action"][row], slot["reward"][row], following, where)
        return any_ended

    # --- snapshots ------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any] | None:
        state = super().snapshot()
        if state is None:
            return None
        own = {"visit": self._visit, "task": self._task, "starts": self._starts.copy()}
        return {**state, **own, "inference": self._inference.snapshot()}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(dict(state))
        self._visit, self._task = int(state["visit"]), int(state["task"])
        self._starts[:] = state["starts"]
        self._inference.restore(state["inference"])
