"""An env that stands for a slow simulator: each step waits, and its observation is an image of the size of Atari's.

Actor processes import this, so it does without torch.
"""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

SIZE = 84
LENGTH = 1000
"""Env steps of an episode."""


class SlowImages(gym.Env[Any, Any]):
    """Waits in each step, without a core, and shows the next of a few random images. The reward is 0."""

    def __init__(self, wait_s: float = 0.0, *, images: bool = True) -> None:
        """Make an env.

        Args:
            wait_s: seconds that a step waits.
            images: whether the observation is an image of 84 x 84 bytes; else a vector of 16 numbers.
        """
        self._wait_s, random = wait_s, np.random.default_rng(0)
        if images:
            self.observation_space = spaces.Box(0, 255, (SIZE, SIZE), np.uint8)
            self._shown = random.integers(0, 256, (8, SIZE, SIZE), np.uint8)
        else:
            self.observation_space = spaces.Box(-1, 1, (16,), np.float32)
            self._shown = random.random((8, 16), np.float32)
        self.action_space = spaces.Discrete(6)
        self._step = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        self._step = 0
        return self._shown[0], {}

    def step(self, action: Any) -> Any:  # noqa: ARG002
        time.sleep(self._wait_s)
        self._step += 1
        return self._shown[self._step % len(self._shown)], 0.0, False, self._step >= LENGTH, {}


if "slow/Images-v0" not in gym.registry:
    gym.register("slow/Images-v0", entry_point="benchmarks.slow_images:SlowImages")
