"""An env whose steps only sleep, for `benchmarks.pipeline`."""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
import numpy as np

ENV = "benchmarks/Sleeping-v0"


class Sleeping(gym.Env[Any, Any]):
    """Each step sleeps and returns the same observation."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, seconds: float = 0.0) -> None:
        """Sleep for so many seconds in each step."""
        self._seconds = seconds
        self._observation = np.zeros(4, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Return the first observation."""
        super().reset(seed=seed, options=options)
        return self._observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:  # noqa: ARG002
        """Sleep."""
        time.sleep(self._seconds)
        return self._observation, 0.0, False, False, {}


if ENV not in gym.registry:
    gym.register(ENV, "benchmarks.sleeping_env:Sleeping", max_episode_steps=100)
