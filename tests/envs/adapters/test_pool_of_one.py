"""A pool with one column is a single env that can be checked and rendered."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from offbeat.config.env import EnvConfig
from offbeat.envs.adapters.envpool.pool_of_one import PoolOfOne
from offbeat.envs.checking.check import check_env
from offbeat.envs.contract import EPISODE_START
from offbeat.envs.make import single_agent_adapter

needs_envpool = pytest.mark.skipif(not find_spec("envpool"), reason="needs envpool")


class GameOfTwoLives:
    """A stand-in for a pool: a life is lost in every third step, and a reset row follows. Each other step pays 1."""

    observation_space = gym.spaces.Dict({"count": gym.spaces.Box(0, 100, (1,), np.float32)})
    action_space = gym.spaces.Discrete(2)

    def __init__(self, seed: int) -> None:
        self.seed, self.count, self.closed = seed, 0, False

    def reset(self) -> tuple[Any, Any]:
        self.count = 0
        return self._observation(), {}

    def step(self, actions: Any) -> tuple[Any, ...]:
        assert actions.shape == (1,)
        self.count += 1
        lost, over, resets = self.count in (3, 7), self.count == 7, self.count == 4
        flags = (np.array([lost]), np.array([False]))
        return self._observation(), np.array([float(not resets)]), *flags, {"terminated": np.array([over])}

    def _observation(self) -> Any:
        return {"count": np.full((1, 1), self.count, np.float32)}

    def close(self) -> None:
        self.closed = True


def played(env: PoolOfOne) -> list[tuple[float, float, bool, bool]]:
    """Play a game; return its observations, rewards and flags."""
    env.reset(seed=1)
    rows: list[tuple[float, float, bool, bool]] = []
    while not (rows and rows[-1][2]):
        observation, reward, terminated, _, info = env.step(0)
        rows.append((float(observation["count"][0]), reward, terminated, info[EPISODE_START]))
    return rows


def test_a_game_goes_on_after_a_lost_life_whose_reset_row_belongs_to_the_step() -> None:
    rows = played(PoolOfOne(GameOfTwoLives, 1, has_lives=True))
    assert [row[0] for row in rows] == [1, 2, 4, 5, 6, 7]
    assert [row[1] for row in rows] == [1] * 6
    assert [row[2:] for row in rows] == [(False, index == 2) if index < 5 else (True, False) for index in range(6)]


def test_a_repeated_action_ends_with_the_episode() -> None:
    assert played(PoolOfOne(GameOfTwoLives, 2, has_lives=False)) == [(2, 2, False, False), (3, 1, True, False)]


def test_each_seed_has_a_pool_and_the_others_are_closed() -> None:
    made: list[GameOfTwoLives] = []

    def make(seed: int) -> GameOfTwoLives:
        made.append(GameOfTwoLives(seed))
        return made[-1]

    env = PoolOfOne(make, 1, has_lives=False)
    for seed in (5, None, 6):
        env.reset(seed=seed)
    env.close()
    assert [pool.seed for pool in made] == [0, 5, 6]
    assert all(pool.closed for pool in made)


@needs_envpool
def test_a_check_finds_a_time_limit_of_a_pool_that_is_reported_as_terminated() -> None:
    (finding,) = check_env("envpool:SlidingTilePuzzle-v0")
    assert finding.problem == "all 2 episodes are terminated after 500 steps, none is truncated"


@needs_envpool
@pytest.mark.parametrize("env_id", ["envpool:CartPole-v1", "envpool:Breakout-v5"])
def test_an_env_of_envpool_is_rendered_in_color_after_each_step(env_id: str) -> None:
    env = single_agent_adapter(env_id).make_renderable(env_id, EnvConfig(), "rgb_array")
    env.reset(seed=1)
    before = env.render()
    for _ in range(6):
        env.step(1)
    assert before.shape[-1] == 3
    assert (env.render() != before).any()
    env.close()
