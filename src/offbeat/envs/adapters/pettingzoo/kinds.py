"""`world_of` makes a world from an env object, by the methods that it has."""

from __future__ import annotations

from typing import Any

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
        env: A `ParallelEnv` or an `AECEnv` of PettingZoo, or an object with the methods of either, as `api_of` says.

    Raises:
        ConfigError: it has no agents, or their names are not strings.
    """
    if type(env).__name__ == _TURN_BASED_WRAPPER:
        env = env.aec_env
    if api_of(env) == "AEC":
        return (SnapshotTurnWorld if can_save(env) else TurnWorld)(env)
    return (SnapshotParallelWorld if can_save(env) else ParallelWorld)(env)
