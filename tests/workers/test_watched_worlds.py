"""The env calls of worlds are watched: a call in which a world is reset has the time limit of resets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.env_rows import empty_slot
from tests.support.policies import WithoutWeights

from offbeat.config.env import EnvConfig
from offbeat.core.types import Acted, Array, Tree, env_fields
from offbeat.envs.checking.preflight import preflight_world
from offbeat.envs.testing.worlds import LateArrivals
from offbeat.envs.worlds.make import make_worlds
from offbeat.workers.actor import Actor
from offbeat.workers.columns import PolicyColumns
from offbeat.workers.link import PolicyWork, Work

CALLS: list[tuple[str, bool]] = []
"""Each call of a world, and whether it was allowed the time of a reset."""


class Watcher:
    """Knows the env call that is running."""

    resets = False

    def enter(self, *, resets: bool) -> None:
        Watcher.resets = resets

    def leave(self) -> None:
        Watcher.resets = False


class Watched(LateArrivals):
    """Agents end one after the other: agent_2 is the last."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        CALLS.append(("reset", Watcher.resets))
        return super().reset(seed, options)

    def step(self, actions: Any) -> Any:
        CALLS.append(("step", Watcher.resets))
        return super().step(actions)


class Waits(WithoutWeights):
    """A policy that takes action 0."""

    def act(self, observation: Tree, random: np.random.Generator, state: Array | None = None) -> Acted:  # noqa: ARG002
        return Acted(np.zeros(len(observation["observation"]), np.int64), {})


@pytest.mark.parametrize("last", [("agent_2",), ("agent_0", "agent_2")])
def test_a_world_has_the_time_limit_of_resets_whichever_policy_has_the_agent_that_ends_last(last):
    world = f"{__name__}:Watched"
    spec = preflight_world(world)
    assert spec is not None
    owners = {"first": tuple(agent for agent in spec.names if agent not in last), "second": last}
    worlds = make_worlds(spec, 1, owners, seed=0, settings=EnvConfig())
    columns = [PolicyColumns(envs, Waits()) for envs in worlds.envs.values()]
    actor = Actor(0, 0, columns, Watcher())
    CALLS.clear()
    actor.start(0)
    slots = [empty_slot(env_fields(envs.spec), 50, envs.spec.columns) for envs in worlds.envs.values()]
    actor.act(Work(0, 0, 0.0, tuple(PolicyWork(np.zeros(0, np.float32), slot) for slot in slots)))
    resets = [resets for call, resets in CALLS if call == "reset"]
    assert len(resets) > 3
    assert all(resets)
    assert not all(resets for call, resets in CALLS if call == "step")
