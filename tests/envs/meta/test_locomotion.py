from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from tests.support.env_rows import actions_of, assert_same, collect

from offbeat.core.seeding import stream
from offbeat.core.tasks import TaskSample
from offbeat.envs.checking.check import check_env
from offbeat.envs.contract import Snapshots
from offbeat.envs.make import make_envs, task_envs
from offbeat.envs.registration import registered_ids

pytestmark = pytest.mark.skipif(not find_spec("mujoco"), reason="needs mujoco")

IDS = ["offbeat/HalfCheetahVelocity-v0", "offbeat/HalfCheetahDirection-v0", "offbeat/AntGoal-v0"]
TASKS = TaskSample(0, train=3, test=2)


def tasks_and_rewards(env_id: str, tasks: list[Any], action: float = 0.5) -> tuple[list[float], list[dict[str, Any]]]:
    """Rewards and infos of the same first step in each task."""
    registered_ids()
    env = gym.make(env_id)
    results = []
    for task in tasks:
        env.get_wrapper_attr("set_task")(task)
        env.reset(seed=0)
        results.append(env.step(np.full(env.action_space.shape or (), action, np.float32)))
    return [float(reward) for _, reward, *_ in results], [info for *_, info in results]


def test_velocity_is_rewarded_by_its_distance_to_the_task() -> None:
    rewards, infos = tasks_and_rewards(IDS[0], [0.0, 2.0])
    costs = 0.05 * 6 * 0.5**2
    velocity = infos[0]["x_velocity"]
    assert rewards == pytest.approx([-abs(velocity) - costs, -abs(velocity - 2) - costs])


def test_direction_changes_the_sign_of_the_velocity() -> None:
    rewards, infos = tasks_and_rewards(IDS[1], [1, -1])
    costs = 0.05 * 6 * 0.5**2
    velocity = infos[0]["x_velocity"]
    assert rewards == pytest.approx([velocity - costs, -velocity - costs])


def test_ant_is_rewarded_by_the_distance_to_its_goal_and_never_terminates() -> None:
    (near, far), infos = tasks_and_rewards(IDS[2], [np.zeros(2), np.array([3.0, 0.0])])
    assert near - far == pytest.approx(3, abs=0.5)
    assert infos[0]["reward_task"] + infos[0]["reward_costs"] == pytest.approx(near)
    envs = task_envs(make_envs(IDS[2], 1, seed=0, tasks=TASKS))
    envs.start_tasks(np.array([0]))
    rows = collect(envs, actions_of(envs, 200))
    assert not rows["terminated"].any()
    assert rows["truncated"].argmax() == 199


def test_the_goal_of_ant_is_on_the_ground() -> None:
    goals = [(3.0, 0.0), (0.0, -3.0)]
    _, infos = tasks_and_rewards(IDS[2], [np.array(goal) for goal in goals])
    for (x, y), info in zip(goals, infos, strict=True):
        distance = abs(info["x_position"] - x) + abs(info["y_position"] - y)
        assert info["reward_task"] == pytest.approx(-distance, abs=0.05)


@pytest.mark.parametrize(
    ("env_id", "task", "following"), [(IDS[0], 0.0, 2.0), (IDS[1], 1, -1), (IDS[2], np.zeros(2), np.array([3.0, 0.0]))]
)
def test_a_new_task_is_in_effect_only_after_the_next_reset(env_id: str, task: Any, following: Any) -> None:
    registered_ids()
    env = gym.make(env_id)
    rewards = []
    for set_after_reset in (task, following):
        env.get_wrapper_attr("set_task")(task)
        env.reset(seed=0)
        env.get_wrapper_attr("set_task")(set_after_reset)
        rewards.append(env.step(np.full(env.action_space.shape or (), 0.5, np.float32))[1])
    assert rewards[0] == rewards[1]


def test_tasks_are_sampled_from_the_published_ranges() -> None:
    registered_ids()
    velocity, direction, ant = (
        np.array(gym.make(env_id).get_wrapper_attr("sample_tasks")(1000, stream(0, "tasks of a test")))
        for env_id in IDS
    )
    assert 0 <= velocity.min() < 0.1
    assert 2.9 < velocity.max() <= 3
    assert direction.tolist() == [1, -1] * 500
    radii = np.linalg.norm(ant, axis=1)
    assert radii.max() <= 3
    assert np.median(radii) == pytest.approx(3 / np.sqrt(2), abs=0.1), "uniform on the disc"


@pytest.mark.parametrize("env_id", IDS)
def test_new_envs_continue_in_their_tasks_bit_for_bit_from_a_snapshot(env_id: str) -> None:
    envs = task_envs(make_envs(env_id, 2, seed=1, tasks=TASKS))
    envs.start_tasks(np.array([1, 4]))
    collect(envs, actions_of(envs, 30))
    assert isinstance(envs, Snapshots)
    state = envs.snapshot()
    actions = actions_of(envs, 40 if "Ant" in env_id else 190, seed=1)
    expected = collect(envs, actions)
    fresh = task_envs(make_envs(env_id, 2, seed=9, tasks=TASKS))
    assert isinstance(fresh, Snapshots)
    fresh.restore(state)
    assert_same(collect(fresh, actions), expected)


@pytest.mark.parametrize("env_id", IDS)
def test_check_finds_nothing(env_id: str) -> None:
    assert check_env(env_id, steps=30) == []
