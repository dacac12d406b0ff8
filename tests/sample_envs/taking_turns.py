"""A world whose agents act by turns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from offbeat.envs.worlds.contract import WorldStep


class TakingTurns:
    """Two agents act by turns, and both see each step. The first one to act ends after its third action."""

    env, turns, frame_skip = None, True, 1

    def __init__(self, agents: tuple[str, ...] = ("even", "odd")) -> None:
        self.agents = agents
        self.actions: dict[str, list[Any]] = {agent: [] for agent in agents}
        self.seen = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
        self.time = 0

    def reset(self, seed: int | None) -> WorldStep:  # noqa: ARG002
        return self._step({})

    def step(self, actions: Mapping[str, Any]) -> WorldStep:
        for agent, action in actions.items():
            self.actions[agent].append(action)
        self.time += 1
        return self._step(dict.fromkeys(self.agents, 1.0))

    def _step(self, rewards: dict[str, float]) -> WorldStep:
        left = [agent for agent in self.agents if self.time <= 5 or agent != "even"]
        observations = dict.fromkeys(left, self.seen[self.time])
        ends = {"even": self.time == 5, "odd": False}
        turn = "odd" if self.time >= 5 else self.agents[self.time % 2]
        return WorldStep(
            observations, {agent: rewards[agent] for agent in left if rewards}, ends, {}, {}, [turn], self.time == 8
        )

    def render(self) -> int:
        return self.time
