"""An env with a box action that cannot be solved without memory; `--import tests.sample_envs.remembering_envs`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

DELAY = 3


class Side(gym.Env[Any, Any]):
    """A side, -1 or 1, is shown in the first row only; the last action is rewarded as far as it lies on that side.

    With memory the best return is 1; without it, it is 0 on average, whatever the policy.
    """

    observation_space: gym.Space[Any] = spaces.Box(-1, 1, (2,), np.float32)
    action_space: gym.Space[Any] = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        self.side, self.age = int(self.np_random.choice([-1, 1])), 0
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        reward = float(action[0]) * self.side if self.age == DELAY else 0.0
        self.age += 1
        return self.observe(), reward, self.age > DELAY, False, {}

    def observe(self) -> Any:
        return np.array([self.side * (self.age == 0), self.age == DELAY], np.float32)


gym.register("memory/Side-v0", "tests.sample_envs.remembering_envs:Side")
