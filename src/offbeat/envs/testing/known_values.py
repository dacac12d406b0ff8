"""Small envs whose value functions are known, for tests of returns, targets and truncation.

All are chains of positions 0, 1, 2, ...: every step from position p has reward p + 1 and leads to p + 1, whatever the
action. They differ in how an episode ends. An observation is (position, noise). The noise comes from the env's own
stream, so that different seeds and snapshots give different observations.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from offbeat.envs.contract import State

Observation = NDArray[np.float32]

RING = 3
"""Positions of ChainTruncates, a ring."""
CHAIN = 4
"""Positions of the other chains, which terminate at the end."""


class Walk(gym.Env[Observation, np.int64]):
    """Positions 0 .. positions - 1 as a chain, which terminates at its end, or as a ring.

    Args:
        positions: Number of positions.
        ring: Whether the first position follows the last one.
        random_start: Whether an episode starts at a random position, or at position 0.
        one_step: Whether the first step already terminates.
    """

    def __init__(
        self, positions: int, *, ring: bool = False, random_start: bool = False, one_step: bool = False
    ) -> None:
        self.observation_space = gym.spaces.Box(_pair(0, 0), _pair(positions, 1), dtype=np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self._positions = positions
        self._ring = ring
        self._random_start = random_start
        self._one_step = one_step
        self._position = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._position = int(self.np_random.integers(self._positions)) if self._random_start else 0
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:  # noqa: ARG002
        reward = float(self._position + 1)
        self._position = self._positions if self._one_step else self._position + 1
        if self._ring:
            self._position %= self._positions
        return self._observation(), reward, self._position == self._positions, False, {}

    def snapshot(self) -> State:
        return {"position": self._position}

    def restore(self, state: State) -> None:
        self._position = state["position"]

    def _observation(self) -> Observation:
        return _pair(self._position, self.np_random.random())


def _pair(position: float, noise: float) -> Observation:
    return np.array([position, noise], np.float32)


WALKS: dict[str, dict[str, Any]] = {
    "offbeat/ChainTruncates-v0": {"positions": RING, "ring": True, "random_start": True},
    "offbeat/ChainTerminates-v0": {"positions": CHAIN, "random_start": True},
    "offbeat/FailsOnLastStep-v0": {"positions": CHAIN},
    "offbeat/OneStep-v0": {"positions": CHAIN, "random_start": True, "one_step": True},
}
"""id -> the constructor's arguments."""
