"""The part of `offbeat check` for envs with tasks, as meta-learning uses them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from offbeat.config.env import EnvConfig
from offbeat.core.errors import ConfigError, EnvFailed
from offbeat.core.tasks import TaskSample
from offbeat.core.types import Tree
from offbeat.envs.adapters.gymnasium.tasks import (
    SAMPLE_TASKS,
    SET_TASK,
    TaskSetter,
    has_method,
    samples_with_generator,
)
from offbeat.envs.checking.parts import SEED, failure
from offbeat.envs.checking.rollouts import rollout, started
from offbeat.envs.findings import Finding
from offbeat.envs.make import task_envs

STEPS = 30
"""Number of env steps in each task."""
TASK_METHODS = (SET_TASK, SAMPLE_TASKS)
"""The methods of an env with tasks."""
TASKS = TaskSample(SEED, train=4, test=2)
"""The tasks that are tried."""


def set_first_task(env: Any, env_id: str) -> Finding | None:
    """Set the first task of an env with tasks, which may need one before it is reset; return the fault, if any."""
    if not has_tasks(env):
        return None
    try:
        TaskSetter([env], TASKS, env_id)
    except (ConfigError, EnvFailed) as error:
        return failure(error)
    return None


def has_tasks(env: Any) -> bool:
    """Whether an env has both methods of an env with tasks, which can be called as meta-learning calls them."""
    return len(_methods(env)) == len(TASK_METHODS) and samples_with_generator(env)


def check_methods(env: Any) -> Iterator[Finding]:
    """Yield the fault of an env that has some of what an env with tasks has; nothing for all or nothing of it."""
    methods = _methods(env)
    if not methods or has_tasks(env):
        return
    remedy = "add it, or wrap the env in offbeat.TaskWrapper; other algorithms than pearl do not use tasks"
    if len(methods) == 1:
        missing = SAMPLE_TASKS if SET_TASK in methods else SET_TASK
        yield Finding("warning", f"the env has the method {methods[0]}, but no {missing}", remedy)
        return
    problem = f"{SAMPLE_TASKS} of the env is not that of meta-learning: it does not accept the arguments n and random"
    yield Finding("warning", problem, remedy.replace("add it", "add them"))


def _methods(env: Any) -> list[str]:
    return [name for name in TASK_METHODS if has_method(env, name)]


def check_tasks(env_id: str, settings: EnvConfig) -> Iterator[Finding]:
    """Yield the faults of the tasks of an env that has them."""
    try:
        rows = [_rows_in_task(env_id, settings, task) for task in (*TASKS.train_tasks, *TASKS.test_tasks)]
        repeated = _rows_in_task(env_id, settings, TASKS.test_tasks[-1])
    except (ConfigError, EnvFailed) as error:
        yield failure(error)
        return
    if not _equal(rows[-1], repeated):
        problem = "the same task, seed and actions give different rows"
        remedy = "draw tasks only with the generator that sample_tasks gets, and all else from self.np_random"
        yield Finding("error", problem, remedy)
    elif all(_equal(rows[0], other) for other in rows[1:]):
        problem = f"{len(rows)} tasks give the same rows with the same seed and actions"
        yield Finding(
            "warning", problem, "let set_task set what differs between tasks, unless random actions cannot show it"
        )


def _rows_in_task(env_id: str, settings: EnvConfig, task: int) -> Tree:
    """Return the rows of new envs in a task, [STEPS + 1, 1, ...] by name."""
    with started(env_id, 1, "check", settings, TASKS) as (envs, _):
        return rollout(envs, task_envs(envs).start_tasks(np.array([task])), STEPS)


def _equal(rows: Tree, other: Tree) -> bool:
    return all(np.array_equal(leaf, other[name]) for name, leaf in rows.items())
