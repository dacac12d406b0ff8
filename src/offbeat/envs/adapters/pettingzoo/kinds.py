"""`world_of` makes a world from an env object, by the methods that it has: AEC, parallel, or neither."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from offbeat.core.errors import ConfigError
from offbeat.envs.adapters.pettingzoo.agents import api_of
from offbeat.envs.adapters.pettingzoo.parallel import ParallelWorld
from offbeat.envs.adapters.pettingzoo.snapshots import SnapshotParallelWorld, SnapshotTurnWorld, can_save
from offbeat.envs.adapters.pettingzoo.turns import TurnWorld
from offbeat.envs.worlds.contract import World

_TURN_BASED_WRAPPER = "turn_based_aec_to_parallel_wrapper"
"""PettingZoo's wrapper that shows a turn-based env as a parallel one in which only one agent's action is used."""


def world_of(env: Any) -> World:
    """Return the world of an env with several agents. It is `WorldSnapshots` if the env's state can be saved.

    Args:
        env: A `ParallelEnv` or an `AECEnv` of PettingZoo, or an object with the methods of either.

    Raises:
        ConfigError: the object is neither, or it has no agents.
    """
    if type(env).__name__ == _TURN_BASED_WRAPPER:
        env = env.aec_env
    api = api_of(env)
    if api == "parallel":
        return (SnapshotParallelWorld if can_save(env) else ParallelWorld)(env)
    if api == "AEC":
        return (SnapshotTurnWorld if can_save(env) else TurnWorld)(env)
    raise ConfigError(f"{_described(env)}, but {_EXPECTED} is expected: {_remedy(env)}")


_EXPECTED = "an env of PettingZoo's parallel API (reset, step, agents) or AEC API (reset, step, last, observe, agents)"


def _described(env: Any) -> str:
    return f"{env.__name__} is a class or function" if hasattr(env, "__name__") else f"{env!r} was given"


def _remedy(env: Any) -> str:
    if hasattr(env, "__name__"):
        return "call it, and pass the env that it returns"
    if isinstance(env, gym.Env):
        return "an env with one agent is used by its Gymnasium id, or by the path of its class"
    return "add the missing methods, as in pettingzoo.ParallelEnv"
