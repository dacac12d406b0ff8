"""Saves and restores the state of envs of your own: those with methods ``snapshot() -> State`` and ``restore(state)``.

As in Gymnasium envs, the two methods save the state between two steps; `np_random` and the random generators of the
agents' spaces are saved for them. Wrappers of PettingZoo that have a state of their own are not supported.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from offbeat.envs.adapters.pettingzoo.agents import AgentsOfEnv
from offbeat.envs.adapters.pettingzoo.parallel import ParallelWorld
from offbeat.envs.adapters.pettingzoo.turns import TurnWorld
from offbeat.envs.contract import State
from offbeat.envs.env_generator import load_generator
from offbeat.envs.space_generators import load_generators, save_generators

_STATELESS = ("AssertOutOfBoundsWrapper", "ClipOutOfBoundsWrapper", "OrderEnforcingWrapper")
"""Wrappers of PettingZoo without a state that a reset does not restore."""


def can_save(env: Any) -> bool:
    """Return whether the whole state of an env and of its wrappers can be saved."""
    inner = type(_inner(env))
    return callable(getattr(inner, "snapshot", None)) and callable(getattr(inner, "restore", None))


def _inner(env: Any) -> Any:
    while type(env).__name__ in _STATELESS:
        env = env.env
    return env


class _SavedEnv(AgentsOfEnv):
    """A world for whose env `can_save` is true."""

    def snapshot(self) -> State:
        """Return the state between two steps."""
        inner = _inner(self.env)
        random = getattr(inner, "np_random", None)
        saved = random.bit_generator.state if isinstance(random, np.random.Generator) else None
        return {"env": dict(inner.snapshot()), "random": saved, "spaces": save_generators(self.spaces())}

    def restore(self, state: State) -> None:
        """Restore the state of a `snapshot`. The env may be newly made."""
        self.env.reset(seed=0)  # wrappers refuse to be stepped before a reset, and some envs make np_random there
        inner = _inner(self.env)
        inner.restore(state["env"])
        if state["random"] is not None:
            load_generator(inner, state["random"])
        self.separate_spaces()
        load_generators(self.spaces(), state["spaces"])


class SnapshotParallelWorld(_SavedEnv, ParallelWorld):
    """A parallel env whose whole state can be saved."""


class SnapshotTurnWorld(_SavedEnv, TurnWorld):
    """A turn-based env whose whole state can be saved."""
