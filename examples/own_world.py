"""A world of your own, with two policies: a cat chases a mouse, which is slower and turns more quickly.

    cd examples
    offbeat train ppo own_world:Chase --policies separate --steps 100000 --run-dir runs/chase
    offbeat eval runs/chase --import own_world

The class has the parallel API of PettingZoo: all agents act in each step, and reset and step return dicts by agent. The
package PettingZoo is not needed. With `snapshot` and `restore` a resumed run continues bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Observations = dict[str, Vector]
Infos = dict[str, dict[str, Any]]

STEP = 0.1
"""Seconds per env step."""
TOP_SPEED = {"cat": 1.0, "mouse": 0.8}
"""Metres per second."""
INERTIA = {"cat": 0.8, "mouse": 0.2}
"""Part of its velocity that an agent keeps in a step."""
REACH = 0.2
"""Distance in metres at which the cat catches the mouse."""
DISTANCE_WEIGHT = 0.1
"""What the cat loses per metre of distance in each step."""
LIMIT = 100
"""Env steps after which the mouse has escaped."""


class Chase:
    """Two agents on a square of 2 m x 2 m. Action: the velocity that the agent wants, in [-1, 1] of its top speed.

    The cat gets 10 when it catches the mouse, and loses a tenth of the distance in each other step. The mouse gets what
    the cat loses.
    """

    metadata: Mapping[str, Any] = {"render_modes": []}

    def __init__(self) -> None:
        self.possible_agents = ["cat", "mouse"]
        self.agents: list[str] = []
        self.np_random = np.random.default_rng(0)
        self._position: dict[str, Vector] = {}
        self._velocity: dict[str, Vector] = {}
        self._steps = 0

    def observation_space(self, agent: str) -> gym.Space[Any]:  # noqa: ARG002 - both agents have the same spaces
        return gym.spaces.Box(-np.inf, np.inf, (8,), np.float32)

    def action_space(self, agent: str) -> gym.Space[Any]:  # noqa: ARG002
        return gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Observations, Infos]:  # noqa: ARG002
        if seed is not None:
            self.np_random = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self._position = {agent: self.np_random.uniform(-1, 1, 2).astype(np.float32) for agent in self.agents}
        self._velocity = {agent: np.zeros(2, np.float32) for agent in self.agents}
        self._steps = 0
        return self._observations(), {agent: {} for agent in self.agents}

    def step(
        self, actions: dict[str, Vector]
    ) -> tuple[Observations, dict[str, float], dict[str, bool], dict[str, bool], Infos]:
        for agent, action in actions.items():
            wanted = TOP_SPEED[agent] * action / max(1.0, float(np.linalg.norm(action)))
            self._velocity[agent] = INERTIA[agent] * self._velocity[agent] + (1 - INERTIA[agent]) * wanted
            self._position[agent] = np.clip(self._position[agent] + STEP * self._velocity[agent], -1.0, 1.0)
        self._steps += 1
        distance = float(np.linalg.norm(self._position["cat"] - self._position["mouse"]))
        caught, late = distance < REACH, self._steps >= LIMIT
        reward = 10.0 if caught else -DISTANCE_WEIGHT * distance
        agents, self.agents = self.agents, [] if caught or late else self.agents
        return (
            self._observations(),
            {"cat": reward, "mouse": -reward},
            dict.fromkeys(agents, caught),
            dict.fromkeys(agents, late and not caught),
            {agent: {} for agent in agents},
        )

    def snapshot(self) -> dict[str, Any]:
        """Return everything that is kept between steps, except `np_random`: offbeat saves that."""
        return {
            "position": dict(self._position),
            "velocity": dict(self._velocity),
            "steps": self._steps,
            "agents": list(self.agents),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `snapshot` returned."""
        self._position, self._velocity = dict(state["position"]), dict(state["velocity"])
        self._steps, self.agents = state["steps"], list(state["agents"])

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _observations(self) -> Observations:
        """Return for each agent the positions and velocities, first its own."""
        parts = {agent: [self._position[agent], self._velocity[agent]] for agent in self.possible_agents}
        return {
            "cat": np.concatenate(parts["cat"] + parts["mouse"]).astype(np.float32),
            "mouse": np.concatenate(parts["mouse"] + parts["cat"]).astype(np.float32),
        }
