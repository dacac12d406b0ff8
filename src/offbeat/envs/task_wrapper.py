"""`TaskWrapper` gives an env tasks by functions, for envs that cannot be changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import gymnasium as gym
import numpy as np

Sampler = Callable[[int, np.random.Generator], Iterable[Any]]
"""Returns n tasks that are drawn with a generator."""


class TaskWrapper(gym.Wrapper[Any, Any, Any, Any]):
    """Gives an env the methods of an env with tasks.

    The snapshots of an env with these tasks are those of the env without the wrapper, with the numbers of the tasks.

        def set_gravity(env, task):
            env.unwrapped.g = task

        def make_pendulum(render_mode=None):
            env = PendulumEnv(render_mode=render_mode)
            return offbeat.TaskWrapper(env, lambda n, random: random.uniform(5, 15, n), set_gravity)

    Args:
        env: The env.
        sample_tasks: Returns n tasks, drawn with a generator: `sample_tasks(n, random)`.
        set_task: Sets a task from the next reset on: `set_task(env, task)`. None: the env has a method
            `set_task(task)`.
        sample_test_tasks: As `sample_tasks`, for the tasks that only evaluations use. None: `sample_tasks` draws them.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        sample_tasks: Sampler,
        set_task: Callable[[gym.Env[Any, Any], Any], None] | None = None,
        sample_test_tasks: Sampler | None = None,
    ) -> None:
        super().__init__(env)
        self.sample_tasks, self._set_task = sample_tasks, set_task
        self.sample_test_tasks = sample_test_tasks or sample_tasks

    def set_task(self, task: Any) -> None:
        """Set the task from the next reset on."""
        if self._set_task is None:
            self.env.get_wrapper_attr("set_task")(task)
        else:
            self._set_task(self.env, task)
