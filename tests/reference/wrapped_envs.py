"""Envs with arguments, wrappers of them, and functions that make them."""

from __future__ import annotations

from typing import Any

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
