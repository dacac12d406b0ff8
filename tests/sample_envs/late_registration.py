"""Envs whose entry points are lambdas, which cannot be sent. Only the first one is registered by the import."""

from __future__ import annotations

import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

gym.register("registered/Now-v0", lambda **_: CartPoleEnv(), max_episode_steps=20)


def register_late() -> None:
    """Register an env that another process does not find after it has imported this module."""
    gym.register("registered/Late-v0", lambda **_: CartPoleEnv(), max_episode_steps=20)
