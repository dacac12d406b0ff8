"""Tasks of Gymnasium envs: samples them, and sets the task of each column.

An env with tasks has two methods: ``sample_tasks(n, random)`` returns n tasks, drawn with the generator `random`, and
``set_task(task)`` sets one, from the next reset on. A task is whatever the env understands. An env whose test tasks
are drawn in another way has a third one, ``sample_test_tasks(n, random)``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offbeat.core.errors import FAILURES, ConfigError, with_traceback_of
from offbeat.core.seeding import stream
from offbeat.core.tasks import TaskSample
from offbeat.envs.adapters.gymnasium.groups import AnyEnv
from offbeat.envs.failures import failed, fault_of_call
from offbeat.envs.progress import owner_of
from offbeat.envs.task_wrapper import Sampler

SET_TASK, SAMPLE_TASKS, SAMPLE_TEST_TASKS = "set_task", "sample_tasks", "sample_test_tasks"
"""Names of the methods of an env with tasks."""


class TaskSetter:
    """The tasks of a run, and the envs of one actor that can be set to them."""

    def __init__(self, envs: Sequence[AnyEnv], sample: TaskSample, env_id: str, check_command: str = "") -> None:
        """Sample the tasks, and set each env to the first one.

        Args:
            envs: Single envs, one per column.
            sample: Which tasks to sample.
            env_id: Id of the env, for messages.
            check_command: The command that checks it, for messages.

        Raises:
            ConfigError: the envs have no tasks, or return another number of tasks than asked for.
            EnvFailed: an env raised an exception in `set_task`.
        """
        self._id, self._check_command = env_id, check_command
        self._set_task = [_method(env, SET_TASK, env_id) for env in envs]
        self._tasks = _sampled(envs[0], sample, env_id)
        self.current = np.zeros(len(envs), np.int64)
        """[N]: number of the task of each column."""
        self.set(self.current)

    def set(self, tasks: NDArray[np.int64]) -> None:
        """Set the task of each column, [N], from its next reset on.

        Raises:
            EnvFailed: an env raised an exception.
        """
        self.current = np.array(tasks, np.int64)
        for column, (set_task, task) in enumerate(zip(self._set_task, self.current.tolist(), strict=True)):
            try:
                set_task(self._tasks[task])
            except FAILURES as error:
                what = fault_of_call("set_task()", error)
                raise failed(self._id, column, what, error, command=self._check_command) from error


def has_method(env: Any, name: str) -> bool:
    """Whether an env, or a wrapper of it, has a method of this name."""
    return callable(getattr(owner_of(env, name), name, None))


def samples_with_generator(env: Any) -> bool:
    """Whether an env's `sample_tasks` accepts a number of tasks and a generator. Others have methods of this name."""
    try:
        inspect.signature(_method(env, SAMPLE_TASKS, "the env")).bind(1, None)
    except TypeError:
        return False
    except ValueError:  # compiled code may have no signature
        return True
    return True


def _method(env: Any, name: str, env_id: str) -> Callable[..., Any]:
    """Return a method of the outermost wrapper, or of the env itself, that has it."""
    if not has_method(env, name):
        other = SAMPLE_TASKS if name == SET_TASK else SET_TASK
        raise ConfigError(
            f"{env_id} has {'only ' + other if has_method(env, other) else 'no tasks'}: an env for meta-learning has "
            "the methods set_task(task) and sample_tasks(n, random), such as offbeat/PointRobot-v0. Add them to the "
            "env, or wrap it in offbeat.TaskWrapper"
        )
    method: Callable[..., Any] = getattr(owner_of(env, name), name)
    return method


def _sampled(env: Any, sample: TaskSample, env_id: str) -> list[Any]:
    """Return the tasks of training, then those of tests."""
    random = stream(sample.seed, "tasks")
    sample_tasks = _method(env, SAMPLE_TASKS, env_id)
    has_own = has_method(env, SAMPLE_TEST_TASKS)
    sample_test_tasks = _method(env, SAMPLE_TEST_TASKS, env_id) if has_own else sample_tasks
    return [
        *_exactly(sample.train, SAMPLE_TASKS, sample_tasks, random, env_id),
        *_exactly(sample.test, SAMPLE_TEST_TASKS if has_own else SAMPLE_TASKS, sample_test_tasks, random, env_id),
    ]


def _exactly(count: int, name: str, sampler: Sampler, random: np.random.Generator, env_id: str) -> list[Any]:
    """Sample exactly this number of tasks.

    Raises:
        ConfigError: the env raised an exception, or returned another number of them.
    """
    try:
        tasks = list(sampler(count, random))
    except FAILURES as error:
        message = f"{env_id}: {fault_of_call(f'{name}({count}, random)', error)}"
        raise with_traceback_of(ConfigError(message), error) from error
    if len(tasks) != count:
        raise ConfigError(
            f"{env_id}: {name}({count}, random) returned {len(tasks)} tasks: return a sequence of exactly {count}, "
            "with repetitions if the env has fewer"
        )
    return tasks
