"""The part of `offbeat check` for envs with tasks, as meta-learning uses them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np

from offbeat.config.env import EnvConfig
from offbeat.core.errors import ConfigError, EnvFailed, OffbeatError
from offbeat.core.tasks import TaskSample
from offbeat.core.types import Tree
from offbeat.envs.adapters.gymnasium.tasks import SAMPLE_TASKS, SET_TASK, TaskSetter, has_method
from offbeat.envs.check_parts import SEED, Finding
from offbeat.envs.check_rows import rollout, started
from offbeat.envs.make import adapter_of, task_envs

STEPS = 30
"""Number of env steps in each task."""
TASK_METHODS = (SET_TASK, SAMPLE_TASKS)
"""The methods of an env with tasks."""
TASKS = TaskSample(SEED, train=4, test=2)
"""The tasks that are tried."""


def set_first_task(env: Any, env_id: str) -> Finding | None:
    """Set the first task of an env with tasks, which may need one before it is reset; return the fault, if any."""
    if len(_methods(env)) < len(TASK_METHODS):
        return None
    try:
        TaskSetter([env], TASKS, env_id)
    except (ConfigError, EnvFailed) as error:
        return _as_finding(error)
    return None


def has_tasks(env_id: str, settings: EnvConfig) -> bool:
    """Whether an env has both methods of an env with tasks."""
    return len(_methods_of(env_id, settings)) == len(TASK_METHODS)


def check_tasks(env_id: str, settings: EnvConfig) -> Iterator[Finding]:
    """Yield the faults of the tasks of an env; nothing for an env that has neither method of an env with tasks."""
    methods = _methods_of(env_id, settings)
    if len(methods) == 1:
        missing = SAMPLE_TASKS if SET_TASK in methods else SET_TASK
        remedy = "add it, or wrap the env in offbeat.TaskWrapper; other algorithms than pearl do not use tasks"
        yield Finding("warning", f"the env has the method {methods[0]}, but no {missing}", remedy)
    if len(methods) == len(TASK_METHODS):
        yield from _check_tasks(env_id, settings)


def _methods_of(env_id: str, settings: EnvConfig) -> list[str]:
    """Return which methods of an env with tasks an env has."""
    env = adapter_of(env_id).make_single(env_id, settings)
    if env is None:
        return []
    with closing(env):
        return _methods(env)


def _methods(env: Any) -> list[str]:
    return [name for name in TASK_METHODS if has_method(env, name)]


def _check_tasks(env_id: str, settings: EnvConfig) -> Iterator[Finding]:
    try:
        rows = [_rows_in_task(env_id, settings, task) for task in (*TASKS.train_tasks, *TASKS.test_tasks)]
        repeated = _rows_in_task(env_id, settings, TASKS.test_tasks[-1])
    except (ConfigError, EnvFailed) as error:
        yield _as_finding(error)
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


def _as_finding(error: OffbeatError) -> Finding:
    problem = error.problem if isinstance(error, EnvFailed) else str(error)
    return Finding("error", problem, "fix the problem that the message names")
