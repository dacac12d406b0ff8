"""What users name by mistake where an env is expected: classes and functions that are none, or need arguments."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

from offbeat.envs.testing.worlds import CartPoles

LEVELS = 3


class Settings:
    """A class that is no env."""


class Level:
    """A class that is no env, and needs an argument."""

    def __init__(self, number: int) -> None:
        self.number = number


class Several(gym.vector.VectorEnv[Any, Any, Any]):
    """A vector env, which is no env by itself."""


class Poles(CartPoles):
    """A world whose constructor has no defaults."""

    def __init__(self, number: int, height: float) -> None:
        assert height
        super().__init__(number)


class Pole(CartPoleEnv):
    """An env with one agent whose constructor has no defaults."""

    def __init__(self, height: float) -> None:
        assert height
        super().__init__()


class NoSpaces(gym.Env[Any, Any]):
    """An env that does not set its spaces."""


class Broken(CartPoleEnv):
    """An env whose constructor raises TypeError, with all arguments given."""

    def __init__(self) -> None:
        raise TypeError("a level is missing")


def nothing() -> None:
    """Return no env."""


def a_class() -> Any:
    """Return a class instead of an env."""
    return Poles
