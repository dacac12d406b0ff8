"""Envs whose arguments change what evaluations must not change, or only what they measure."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv

from offbeat.envs.testing.worlds import CartPoles


class Sized(gym.Env[Any, Any]):
    """An episode of `length` steps with a reward of `pay` each. The other arguments change the spaces."""

    def __init__(
        self, size: int = 2, actions: int = 2, first: int = 0, reach: float = 0.0, pay: float = 1.0, length: int = 4
    ) -> None:
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (size,), np.float32)
        discrete = gym.spaces.Discrete(actions, start=first)
        self.action_space = gym.spaces.Box(-reach, reach, (1,)) if reach else discrete
        self._pay, self._length, self._steps = pay, length, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ARG002
        super().reset(seed=seed)
        self._steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:  # noqa: ARG002
        self._steps += 1
        return self.observation_space.sample(), self._pay, self._steps >= self._length, False, {}


class Other(Sized):
    """An env with the same spaces."""


class Falling(CartPoles):
    """A world that raises after this number of steps of an episode; 0: never."""

    def __init__(self, falls_after: int = 0) -> None:
        super().__init__()
        self._falls_after = falls_after

    def step(self, actions: Any) -> Any:
        if 0 < self._falls_after <= self._steps:
            raise ZeroDivisionError("it fell")
        return super().step(actions)


def one_or_several(several: bool = False) -> Any:
    """Return an env with one agent, or with several."""
    return CartPoles() if several else CartPoleEnv()
