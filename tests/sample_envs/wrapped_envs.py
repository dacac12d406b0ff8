"""Envs with arguments, wrappers of them, and functions that make them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv


class ShortCartPole(CartPoleEnv):
    """Ends after some steps."""

    def __init__(self, steps: int = 5, render_mode: str | None = None) -> None:
        super().__init__(render_mode=render_mode)
        self._limit, self._taken = steps, 0

    def reset(self, **arguments: Any) -> Any:
        self._taken = 0
        return super().reset(**arguments)

    def step(self, action: Any) -> Any:
        self._taken += 1
        observation, reward, _, _, info = super().step(action)
        return observation, reward, self._taken >= self._limit, False, info


class HalvedReward(gym.RewardWrapper[Any, Any]):
    """Halves the rewards."""

    def reward(self, reward: Any) -> float:
        return float(reward) / 2


class MinusOne(gym.RewardWrapper[Any, Any]):
    """Subtracts 1 from the rewards."""

    def reward(self, reward: Any) -> float:
        return float(reward) - 1


class NeedsArgument(gym.Wrapper[Any, Any, Any, Any]):
    """Cannot be made with the env alone."""

    def __init__(self, env: gym.Env[Any, Any], size: int) -> None:
        super().__init__(env)
        self.size = size


def not_an_env(env: gym.Env[Any, Any]) -> int:
    """Return something else than an env."""
    env.close()
    return 3


def without_render_mode(steps: int = 5) -> gym.Env[Any, Any]:
    """Return an env that cannot be rendered."""
    return ShortCartPole(steps)


def always_pictures(steps: int = 5) -> gym.Env[Any, Any]:
    """Return an env that renders pictures, without being asked."""
    return ShortCartPole(steps, render_mode="rgb_array")


def with_render_mode(render_mode: str | None = None) -> gym.Env[Any, Any]:
    """Return an env that is rendered as asked."""
    return ShortCartPole(5, render_mode=render_mode)
