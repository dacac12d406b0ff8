from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control import PendulumEnv
from tests.support.env_rows import actions_of, assert_same, collect

from offbeat.core.errors import ConfigError, EnvFailed
from offbeat.core.saved_state import saved_and_loaded
from offbeat.core.tasks import TaskSample
from offbeat.core.types import Tree
from offbeat.envs.checking.check import check_env
from offbeat.envs.checking.preflight import preflight
from offbeat.envs.contract import Snapshots, TaskEnvs
from offbeat.envs.make import make_envs, task_envs
from offbeat.envs.task_wrapper import TaskWrapper

TASKS = TaskSample(seed=3, train=4, test=2)
GRAVITY = "tasks/Gravity-v0"


def set_gravity(env: gym.Env[Any, Any], task: float) -> None:
    env.unwrapped.g = task  # type: ignore[attr-defined]


def make_gravity(*, render_mode: str | None = None) -> gym.Env[Any, Any]:
    """Pendulum, with tasks by functions; test tasks are heavier."""
    env = PendulumEnv(render_mode=render_mode)
    return TaskWrapper(env, lambda n, random: random.uniform(5, 10, n), set_gravity, lambda n, _: np.full(n, 20.0))


class Pendulum(PendulumEnv):
    """Pendulum with the two methods, which subclasses break."""

    def sample_tasks(self, n: int, random: np.random.Generator) -> Any:
        return random.uniform(5, 10, n)

    def set_task(self, task: float) -> None:
        self.g = task


class Unseeded(Pendulum):
    def sample_tasks(self, n: int, random: np.random.Generator) -> Any:  # noqa: ARG002
        return np.random.default_rng().uniform(5, 10, n)


class NoEffect(Pendulum):
    def set_task(self, task: float) -> None:
        pass


class TooFew(Pendulum):
    def sample_tasks(self, n: int, random: np.random.Generator) -> Any:
        return random.uniform(5, 10, min(n, 3))


class Refuses(Pendulum):
    def set_task(self, task: float) -> None:
        raise ZeroDivisionError(f"no gravity of {task}")


class NeedsTask(Pendulum):
    """Like the envs of Meta-World, it cannot be reset without a task."""

    has_task = False

    def set_task(self, task: float) -> None:
        super().set_task(task)
        self.has_task = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        assert self.has_task
        return super().reset(seed=seed, options=options)


class OwnSampler(PendulumEnv):
    """Like Meta-World's MT1, it has methods of these names for another purpose."""

    def sample_tasks(self) -> None:
        raise NotImplementedError

    def set_task(self, task: float) -> None:
        raise NotImplementedError


class OnlySets(PendulumEnv):
    def set_task(self, task: float) -> None:
        self.g = task


_KINDS: dict[str, Any] = {
    kind.__name__: kind for kind in (Pendulum, Unseeded, NoEffect, TooFew, Refuses, NeedsTask, OnlySets, OwnSampler)
}
for _name, _make in {**_KINDS, "Gravity": make_gravity}.items():
    gym.register(f"tasks/{_name}-v0", _make, max_episode_steps=20)


def made(env_id: str, columns: int = 3, *, seed: int = 0, groups: int = 1) -> TaskEnvs:
    return task_envs(make_envs(env_id, columns, seed=seed, groups=groups, tasks=TASKS))


def played(envs: TaskEnvs, tasks: list[int], steps: int = 30) -> Tree:
    first = {f"first {name}": leaf.copy() for name, leaf in envs.start_tasks(np.array(tasks)).items()}
    return {**first, **collect(envs, actions_of(envs, steps))}


def gravities(envs: TaskEnvs) -> list[float]:
    return [env.unwrapped.g for env in envs._all_envs()]  # type: ignore[attr-defined]


def test_each_column_has_its_own_task_from_the_first_row_of_a_new_episode() -> None:
    envs = made("tasks/Pendulum-v0")
    assert gravities(envs) == [gravities(envs)[0]] * 3, "before the first call, all columns have task 0"
    envs.start_tasks(np.array([0, 2, 5]))
    collect(envs, actions_of(envs, 7))
    before = gravities(envs)
    observation = envs.start_tasks(np.array([2, 2, 0]))["observation"].copy()
    assert gravities(envs) == [before[1], before[1], before[0]]
    rows = collect(envs, actions_of(envs, 21))
    assert rows["truncated"].argmax(0).tolist() == [19, 19, 19], "each column begins an episode of 20 steps"
    assert not np.array_equal(observation, rows["observation"][0])


def test_a_column_keeps_its_task_over_the_following_episodes_and_resets() -> None:
    envs = made("tasks/Pendulum-v0")
    envs.start_tasks(np.array([1, 3, 4]))
    expected = gravities(envs)
    collect(envs, actions_of(envs, 50))
    envs.reset()
    assert gravities(envs) == expected


def test_tasks_depend_on_the_seed_of_the_sample_and_not_on_that_of_the_envs() -> None:
    assert gravities_of(seed=0) == gravities_of(seed=7)
    assert gravities_of(sample=TaskSample(4, 4, 2)) != gravities_of()
    more = gravities_of(sample=TaskSample(3, 4, 1))
    assert more[:4] == gravities_of()[:4]


def gravities_of(*, seed: int = 0, sample: TaskSample = TASKS) -> list[float]:
    envs = task_envs(make_envs("tasks/Pendulum-v0", sample.train + sample.test, seed=seed, tasks=sample))
    envs.start_tasks(np.arange(sample.train + sample.test))
    return gravities(envs)


def test_train_and_test_tasks_are_numbered_one_after_the_other() -> None:
    assert [*TASKS.train_tasks] == [0, 1, 2, 3]
    assert [*TASKS.test_tasks] == [4, 5]


def test_test_tasks_have_a_sampler_of_their_own_where_the_env_has_one() -> None:
    envs = made(GRAVITY, 6)
    envs.start_tasks(np.arange(6))
    assert all(5 <= gravity <= 10 for gravity in gravities(envs)[:4])
    assert gravities(envs)[4:] == [20.0, 20.0]


@pytest.mark.parametrize("env_id", ["tasks/Gravity-v0", "offbeat/PointRobot-v0", "offbeat/SparsePointRobot-v0"])
def test_new_envs_continue_in_their_tasks_bit_for_bit_from_a_snapshot(env_id: str) -> None:
    envs = made(env_id, 4, groups=2)
    played(envs, [4, 1, 0, 5], 33)
    assert isinstance(envs, Snapshots)
    state = saved_and_loaded(envs.snapshot())
    actions = actions_of(envs, 60, seed=1)
    expected = collect(envs, actions)
    fresh = made(env_id, 4, seed=99, groups=2)
    assert isinstance(fresh, Snapshots)
    fresh.restore(state)
    assert_same(collect(fresh, actions), expected)


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("CartPole-v1", "CartPole-v1 has no tasks: an env for meta-learning has the methods set_task"),
        ("tasks/OnlySets-v0", "has only set_task: an env for meta-learning has"),
        ("tasks/TooFew-v0", r"sample_tasks\(4, random\) returned 3 tasks: return a sequence of exactly 4"),
    ],
)
def test_an_env_without_tasks_is_refused_with_what_is_missing(env_id: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        made(env_id)


def test_preflight_refuses_an_env_that_fails_in_set_task_before_a_run() -> None:
    with pytest.raises(EnvFailed, match=r"env 0: set_task\(\) raised ZeroDivisionError: no gravity of"):
        made("tasks/Refuses-v0")
    with pytest.raises(ConfigError, match=r"set_task\(\) raised ZeroDivisionError"):
        preflight("tasks/Refuses-v0", tasks=TASKS)
    assert preflight("tasks/Pendulum-v0", tasks=TASKS).time_limit == 20


@pytest.mark.parametrize("env_id", [GRAVITY, "tasks/Pendulum-v0", "tasks/NeedsTask-v0", "offbeat/PointRobot-v0"])
def test_check_finds_nothing_in_an_env_with_correct_tasks(env_id: str) -> None:
    assert check_env(env_id, steps=60) == []


@pytest.mark.parametrize(
    ("name", "severity", "seen"),
    [
        ("Unseeded", "error", "the same task, seed and actions give different rows"),
        ("NoEffect", "warning", "6 tasks give the same rows"),
        ("TooFew", "error", "returned 3 tasks"),
        ("Refuses", "error", "no gravity of"),
        ("OnlySets", "warning", "has the method set_task, but no sample_tasks"),
        ("OwnSampler", "warning", "does not accept the arguments n and random"),
    ],
)
def test_check_reports_the_fault_of_broken_tasks(name: str, severity: str, seen: str) -> None:
    (finding,) = check_env(f"tasks/{name}-v0", steps=60)
    assert finding.severity == severity
    assert seen in finding.problem
