"""An env of your own: a boat is steered to a landing stage against a current that changes.

    cd examples
    offbeat check my_env/Docking-v0 --import my_env
    offbeat train ppo my_env/Docking-v0 --import my_env --steps 100000

Importing this module registers the env. All random numbers come from `self.np_random`, so equal seeds give equal rows.
With `snapshot` and `restore` a resumed run continues bit for bit.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

Observation = NDArray[np.float32]

SHORE = 10.0
"""Metres from the stage at which the boat is lost."""
STEP = 0.1
"""Seconds per env step."""


class Docking(gym.Env[Observation, Observation]):
    """A boat on a line. Action: thrust in m/s^2. Reward: 1 at the stage, less the further away, -10 when lost."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = gym.spaces.Box(-2.0, 2.0, (1,), np.float32)
        self._position = self._speed = self._current = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._position = float(self.np_random.uniform(-5, 5))
        self._speed = 0.0
        self._current = float(self.np_random.normal(0, 0.5))
        return self._observation(), {}

    def step(self, action: Observation) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        self._current += float(self.np_random.normal(0, 0.05))
        self._speed += STEP * (float(action[0]) + self._current - 0.2 * self._speed)
        self._position += STEP * self._speed
        lost = abs(self._position) > SHORE
        reward = -10.0 if lost else 1.0 - abs(self._position) / SHORE
        return self._observation(), reward, lost, False, {}

    def snapshot(self) -> dict[str, Any]:
        """Return everything that is kept between steps, except `np_random` and the time limit: offbeat saves those."""
        return {"position": self._position, "speed": self._speed, "current": self._current}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `snapshot` returned."""
        self._position, self._speed, self._current = state["position"], state["speed"], state["current"]

    def _observation(self) -> Observation:
        return np.array([self._position, self._speed, self._current], np.float32)


gym.register("my_env/Docking-v0", entry_point="my_env:Docking", max_episode_steps=200)
