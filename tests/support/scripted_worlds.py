"""A world that plays a script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from offbeat.core.types import ActionSpec, EnvSpec, Leaf
from offbeat.envs.contract import State
from offbeat.envs.worlds.contract import WorldStep

SPACE, ACTIONS = gym.spaces.Box(-np.inf, np.inf, (1,)), gym.spaces.Discrete(2)
SPEC = EnvSpec("script", (Leaf("observation", (1,), "float32"),), ActionSpec("discrete", (), (2,)), 1)


def step(ended: Mapping[str, str] | None = None, deciding: str | None = None, **rewards: float) -> WorldStep:
    """Return a step of the agents in `rewards`; those in `ended` end there, by 'terminated' or 'truncated'."""
    ended = ended or {}
    alive = [agent for agent in rewards if agent not in ended]
    return WorldStep(
        observations={agent: np.full(1, reward, np.float32) for agent, reward in rewards.items()},
        rewards=rewards,
        terminations={agent: ended.get(agent) == "terminated" for agent in rewards},
        truncations={agent: ended.get(agent) == "truncated" for agent in rewards},
        infos={agent: {} for agent in rewards},
        deciding=alive if deciding is None else list(deciding),
        over=not alive,
    )


class Script:
    """A world that plays a script of steps; its first step is what `reset` returns. It can be saved."""

    turns, frame_skip = False, 1
    env: Any = None

    def __init__(self, *steps: WorldStep, agents: str = "ab") -> None:
        self.agents = tuple(agents)
        self._steps, self._next = steps, 0
        self.actions: list[dict[str, Any]] = []

    def observation_space(self, agent: str) -> gym.Space[Any]:  # noqa: ARG002
        return SPACE

    def action_space(self, agent: str) -> gym.Space[Any]:  # noqa: ARG002
        return ACTIONS

    def reset(self, seed: int | None) -> WorldStep:  # noqa: ARG002
        self._next = 1
        return self._steps[0]._replace(rewards={}, terminations={}, truncations={})

    def step(self, actions: Mapping[str, Any]) -> WorldStep:
        self.actions.append({agent: int(action) for agent, action in actions.items()})
        self._next += 1
        return self._steps[self._next - 1]

    def render(self) -> None:
        """Return nothing."""

    def close(self) -> None:
        """Do nothing."""

    def snapshot(self) -> State:
        return {"next": self._next}

    def restore(self, state: State) -> None:
        self._next = state["next"]
