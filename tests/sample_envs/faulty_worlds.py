"""Parallel envs with two agents, each with one fault; `Scripted` has none.

'first' ends after the second step, 'second' after the fourth. The faults are in the third step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

ENDS = {"first": 2, "second": 4}
FAULT = 3
"""The step with the fault."""


class Scripted:
    """A correct env, whose observations have the number of the step."""

    metadata: Mapping[str, Any] = {"render_modes": []}
    possible_agents: Any = tuple(ENDS)

    def __init__(self) -> None:
        self.agents: list[str] = []
        self.time = 0

    def observation_space(self, agent: str) -> gym.Space[Any]:  # noqa: ARG002
        return gym.spaces.Box(0, 10, (1,), np.float32)

    def action_space(self, agent: str) -> gym.Space[Any]:  # noqa: ARG002
        return gym.spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:  # noqa: ARG002
        self.agents, self.time = list(ENDS), 0
        return self._observe(self.agents), {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, Any]) -> Any:  # noqa: ARG002
        self.time += 1
        agents = list(self.agents)
        terminations = {agent: self.time == ENDS[agent] for agent in agents}
        self.agents = [agent for agent in agents if not terminations[agent]]
        truncations: dict[str, bool] = dict.fromkeys(agents, False)
        infos: dict[str, dict[str, Any]] = {agent: {} for agent in agents}
        step = (self._observe(agents), dict.fromkeys(agents, 1.0), terminations, truncations, infos)
        return self.with_fault(*step) if self.time == FAULT else step

    def close(self) -> None:
        pass

    def with_fault(self, observations: Any, rewards: Any, terminations: Any, truncations: Any, infos: Any) -> Any:
        """Return the step with the fault."""
        return observations, rewards, terminations, truncations, infos

    def _observe(self, agents: Any) -> dict[str, Any]:
        return {agent: np.full(1, self.time, np.float32) for agent in agents}


class Revives(Scripted):
    """'first' appears again."""

    def with_fault(self, observations: Any, rewards: Any, terminations: Any, truncations: Any, infos: Any) -> Any:
        self.agents = ["first", *self.agents]
        return {**observations, **self._observe(["first"])}, rewards, terminations, truncations, infos


class EndsTwice(Scripted):
    """'first' ends again."""

    def with_fault(self, observations: Any, rewards: Any, terminations: Any, truncations: Any, infos: Any) -> Any:
        observations = {**observations, **self._observe(["first"])}
        return (
            observations,
            {**rewards, "first": 0.0},
            {**terminations, "first": True},
            {**truncations, "first": False},
            infos,
        )


class RewardsTheDead(Scripted):
    """'first' gets a reward."""

    def with_fault(self, observations: Any, rewards: Any, terminations: Any, truncations: Any, infos: Any) -> Any:
        return observations, {**rewards, "first": 1.0}, terminations, truncations, infos


class KeepsTheDead(Scripted):
    """'first' is among the living agents again, although it gets nothing."""

    def with_fault(self, observations: Any, rewards: Any, terminations: Any, truncations: Any, infos: Any) -> Any:
        self.agents = ["first", *self.agents]
        return observations, rewards, terminations, truncations, infos


class LeavesWithoutEnd(Scripted):
    """'second' is gone, although its episode did not end."""

    def with_fault(self, observations: Any, rewards: Any, terminations: Any, truncations: Any, infos: Any) -> Any:
        self.agents = []
        return observations, rewards, terminations, truncations, infos


class LosesAnObservation(Scripted):
    """'second' has no observation."""

    def with_fault(self, observations: Any, rewards: Any, terminations: Any, truncations: Any, infos: Any) -> Any:  # noqa: ARG002
        return {}, rewards, terminations, truncations, infos


class ReturnsNaN(Scripted):
    """The reward of 'second' is NaN."""

    def with_fault(self, observations: Any, rewards: Any, terminations: Any, truncations: Any, infos: Any) -> Any:  # noqa: ARG002
        return observations, {"second": float("nan")}, terminations, truncations, infos


class Unlisted(Scripted):
    """'third' appears, which is not among the possible agents."""

    def with_fault(self, observations: Any, rewards: Any, terminations: Any, truncations: Any, infos: Any) -> Any:
        self.agents = [*self.agents, "third"]
        return {**observations, **self._observe(["third"])}, rewards, terminations, truncations, infos


class FourValues(Scripted):
    """The step has four values, as in early versions of PettingZoo."""

    def with_fault(self, observations: Any, rewards: Any, terminations: Any, truncations: Any, infos: Any) -> Any:  # noqa: ARG002
        return observations, rewards, terminations, infos


WRONG_ROWS = (Revives, EndsTwice, RewardsTheDead, KeepsTheDead, LeavesWithoutEnd, LosesAnObservation, ReturnsNaN)
"""Faults that the adapter does not see."""
