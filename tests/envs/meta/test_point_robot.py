from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from offbeat.core.seeding import stream
from offbeat.envs.meta.point_robot import PointRobot, SparsePointRobot

Positions = NDArray[Any]
GOALS = 800
STEPS = 20


def mean_return(env: PointRobot, action: Callable[[Positions, Positions], Positions]) -> float:
    """Mean return over many goals of a policy, from position and goal to an action."""
    total = 0.0
    for goal in env.sample_tasks(GOALS, stream(0, "goals of a test")):
        env.set_task(goal)
        position, _ = env.reset()
        for _ in range(STEPS):
            position, reward, *_ = env.step(action(position, goal).astype(np.float32))
            total += reward
    return total / GOALS


def to_goal(position: Positions, goal: Positions) -> Positions:
    return np.clip(goal - position, -0.1, 0.1)


def stay(position: Positions, _goal: Positions) -> Positions:
    return np.zeros_like(position)


def test_the_best_return_in_a_known_task_is_far_above_that_of_a_policy_blind_to_the_task() -> None:
    assert mean_return(PointRobot(), to_goal) == pytest.approx(-5.10, abs=0.15)
    assert mean_return(PointRobot(), stay) == pytest.approx(-15.30, abs=0.25)


def test_the_sparse_robot_is_rewarded_only_near_its_goal_on_the_half_circle() -> None:
    env = SparsePointRobot()
    goals = np.array(env.sample_tasks(200, stream(0, "goals of a test")))
    np.testing.assert_allclose(np.linalg.norm(goals, axis=1), 1)
    assert (goals[:, 1] >= 0).all()
    env.set_task(np.array([0.0, 1.0]))
    env.reset()
    rewards = [env.step(np.array([0.0, 0.1], np.float32))[1] for _ in range(11)]
    assert rewards[:7] == [0.0] * 7
    np.testing.assert_allclose(rewards[7:], [0.8, 0.9, 1.0, 0.9], atol=1e-6)


def test_a_new_goal_is_in_effect_only_after_the_next_reset() -> None:
    env = PointRobot()
    env.reset()
    env.set_task(np.array([1.0, 0.0]))
    assert env.step(np.zeros(2, np.float32))[1] == 0
    env.reset()
    assert env.step(np.zeros(2, np.float32))[1] == -1


def test_the_picture_shows_the_goal_and_the_path() -> None:
    env = PointRobot(render_mode="rgb_array")
    env.set_task(np.array([0.5, 0.5]))
    env.reset()
    before = env.render()
    env.step(np.array([0.05, 0.05], np.float32))
    after = env.render()
    assert before is not None
    assert after is not None
    assert after.shape == (240, 240, 3)
    assert not np.array_equal(before, after)
    red = np.argwhere((after == (200, 60, 40)).all(axis=2)).mean(axis=0)
    assert red[0] < 120 < red[1], "the goal is at the upper right"
