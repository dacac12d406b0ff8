"""What a loaded policy knows about the tasks of its envs between calls."""

from __future__ import annotations

from typing import Any

import numpy as np

from offbeat.api.playing.inputs import per_env
from offbeat.core.types import Array, Tree
from offbeat.models.acting import ActingPolicy
from offbeat.models.task_inference import TaskInference


class TaskMemory:
    """The contexts and task variables of N envs. N is known from the first observations on."""

    def __init__(self, policy: ActingPolicy) -> None:
        self._policy = policy
        self._inference: TaskInference | None = None
        self.forget(None)

    def forget(self, random: np.random.Generator | None) -> None:
        """Forget the tasks of all envs. `random` draws the task variables; None: a generator with the seed 0."""
        self._random = random or np.random.default_rng(0)
        self._inference = None
        self._first_prior = False
        """Whether the first task variables are drawn from the prior, whatever is observed before."""

    def start_episodes(self, ended: Any, *, prior: bool) -> None:
        """Draw new task variables before the next actions in the envs where `ended`, [N]; None: in all.

        `prior`: whether to draw them from the prior, and not from the posterior.
        """
        if self._inference is None:
            self._first_prior = prior
            return
        envs = len(self._starts)
        where = np.ones(envs, np.bool_) if ended is None else per_env("ended", ended, envs)
        self._starts[where], self._prior[where] = True, prior

    def with_task(self, leaves: Tree) -> Tree:
        """Return the inputs of the policy, for observations [N, *shape] by leaf."""
        inference = self._of(leaves)
        inference.sample_prior(self._random, self._starts & self._prior)
        inference.sample_posterior(self._random, self._starts & ~self._prior)
        self._starts[:] = False
        return inference.with_task(leaves)

    def observe(self, leaves: Tree, action: Array, reward: Array, following: Tree, where: Any) -> None:
        """Add a transition to the contexts of the envs in `where`, [N]; None: of all. Arguments as `TaskInference`."""
        inference = self._of(leaves)
        envs = len(self._starts)
        flags = np.ones(envs, np.bool_) if where is None else per_env("where", where, envs)
        inference.observe(leaves, action, reward, following, flags)

    def _of(self, leaves: Tree) -> TaskInference:
        """Return the inference for as many envs as there are observations."""
        envs = len(next(iter(leaves.values())))
        if self._inference is None:
            self._inference = TaskInference(self._policy, envs)
            self._starts, self._prior = np.ones(envs, np.bool_), np.full(envs, self._first_prior)
        if len(self._starts) != envs:
            raise ValueError(
                f"{envs} observations are given, but the policy knows the tasks of {len(self._starts)} envs: call "
                "reset_task() before a call with another number of envs"
            )
        return self._inference
