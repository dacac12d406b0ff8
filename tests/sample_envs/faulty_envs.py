"""The matrix's envs, of which one raises once; `--import tests.sample_envs.faulty_envs` registers them.

Actor processes import this, so it does without torch.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import gymnasium as gym
import tests.sample_envs.run_envs  # noqa: F401 - registers runs/Locks-v0 and others
from tests.support.registering import is_first

import offbeat.envs.own  # noqa: F401 - registers offbeat's own envs
from offbeat.envs.testing.games import PLAYERS, Nim
from offbeat.envs.testing.worlds import CartPoles

PREFIX = "faulty/"
LIFE = 30
"""Env steps after which an env raises."""


class RaisesOnce(gym.Wrapper[Any, Any, Any, Any]):
    """The first env of all to come to the last step of its life raises in it: the file RAISED says who was first."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._life = 0

    def step(self, action: Any) -> Any:
        self._life += 1
        if self._life == LIFE and is_first("RAISED"):
            raise ZeroDivisionError("the env has no length")
        return super().step(action)


class RaisingCartPoles(CartPoles):
    """Likewise with several agents."""

    _life = 0

    def step(self, actions: Mapping[str, Any]) -> Any:
        self._life += 1
        if self._life == LIFE and is_first("RAISED"):
            raise ZeroDivisionError("the env has no length")
        return super().step(actions)


class HangingNim(Nim):
    """The first player_1 of all to come to the last step of its life sleeps in it for ten minutes."""

    _life = 0

    def step(self, action: Any) -> None:
        self._life += 1
        if self._life >= LIFE and self.agent_selection == PLAYERS[1] and is_first("RAISED"):
            time.sleep(600)
        super().step(action)


def faulty(env: str) -> str:
    """Return the id of the env that is like `env`, but for raising."""
    return WORLDS.get(env) or PREFIX + env.rpartition("/")[2]


def _make(env: str) -> gym.Env[Any, Any]:
    return RaisesOnce(gym.make(env, disable_env_checker=True))


ENVS = (
    "CartPole-v1",
    "Pendulum-v1",
    "offbeat/Pixels-v0",
    "offbeat/PixelsGoal-v0",
    "offbeat/PixelsMotion-v0",
    "offbeat/Bandit-v0",
    "offbeat/Recall-v0",
    "runs/Locks-v0",
    "runs/Doors-v0",
    "offbeat/PointRobot-v0",
)
WORLDS = {"offbeat.envs.testing.worlds:CartPoles": f"{__name__}:RaisingCartPoles"}
"""Id of a world -> id of the one that raises. They are not registered."""


def _register() -> None:
    for env in ENVS:
        if faulty(env) not in gym.registry:
            gym.register(faulty(env), partial(_make, env))


_register()
