"""Worlds with two agents, each of which breaks one rule; `Sound` breaks none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from offbeat.envs.testing.games import PLAYERS, Nim
from offbeat.envs.testing.worlds import Infos, Observations, ParallelStep, SmallWorld

LIVES = {"a": 3, "b": 5}
"""Steps after which each agent is terminated."""


class Sound(SmallWorld):
    """Agents a and b see noise, and end after 3 and after 5 steps. An info has the mask of the next action."""

    def __init__(self) -> None:
        spaces = (gym.spaces.Box(0, 1, (2,), np.float32), gym.spaces.Discrete(2))
        super().__init__(dict.fromkeys(LIVES, spaces))
        self.age = 0

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Observations, Infos]:  # noqa: ARG002
        self._start(seed, LIVES)
        self.age = 0
        return self._observations(), self._infos()

    def step(self, actions: Mapping[str, Any]) -> ParallelStep:  # noqa: ARG002
        self.age += 1
        seen = list(self.agents)
        self.agents = [agent for agent, life in LIVES.items() if self.age < life]
        observations, infos = self._observations(), self._infos()
        ends = {agent: agent not in self.agents for agent in seen}
        return self.wrong(
            {agent: observations[agent] for agent in seen},
            dict.fromkeys(seen, 1.0),
            ends,
            dict.fromkeys(seen, False),
            {agent: infos[agent] for agent in seen},
        )

    def _observations(self) -> Observations:
        return {agent: self.np_random.random(2, np.float32) for agent in LIVES}

    def _infos(self) -> Infos:
        return {agent: {"action_mask": np.ones(2, np.int8)} for agent in LIVES}

    def wrong(self, *parts: Any) -> Any:
        """Break the rule in the parts of a step."""
        return parts


class ForgetsItsAge(Sound):
    """What it saves does not say how old the episode is."""

    def snapshot(self) -> dict[str, Any]:
        return {"agents": self.agents}

    def restore(self, state: dict[str, Any]) -> None:
        self.agents = state["agents"]


class SavesAnObject(ForgetsItsAge):
    def snapshot(self) -> dict[str, Any]:
        return {"agents": self.agents, "rules": self.wrong}


class RewardsTheDead(Sound):
    def wrong(self, *parts: Any) -> Any:
        if self.age == 4:
            parts[1]["a"] = 2.0
        return parts


class PaysTooMuch(Sound):
    def wrong(self, *parts: Any) -> Any:
        parts[1]["b"] = 1e5
        return parts


class KeepsTheDead(Sound):
    """Returns values for an agent that has ended, which is no fault."""

    def wrong(self, *parts: Any) -> Any:
        if self.age == 4:
            values: tuple[Any, ...] = (None, 0.0, True, False, {})
            for part, value in zip(parts, values, strict=True):
                part["a"] = value
        return parts


class Revives(Sound):
    def wrong(self, *parts: Any) -> Any:
        if self.age == 4:
            self.agents = ["a", "b"]
            parts[0]["a"] = np.zeros(2, np.float32)
        return parts


class LosesAnAgent(Sound):
    def wrong(self, *parts: Any) -> Any:
        if self.age == 2:
            for part in parts:
                del part["b"]
        return parts


class LeavesWithoutAnEnd(Sound):
    def wrong(self, *parts: Any) -> Any:
        if self.age == 5:
            parts[2]["b"] = False
        return parts


class LosesAReward(Sound):
    def wrong(self, *parts: Any) -> Any:
        if self.age == 2:
            del parts[1]["b"]
        return parts


class HasAStranger(Sound):
    def wrong(self, *parts: Any) -> Any:
        if self.age == 2:
            parts[0]["z"] = np.zeros(2, np.float32)
        return parts


class EndsAll(Sound):
    """Has the key of RLlib for the end of all agents."""

    def wrong(self, *parts: Any) -> Any:
        parts[2]["__all__"] = parts[3]["__all__"] = False
        return parts


class LeavesItsSpace(Sound):
    def wrong(self, *parts: Any) -> Any:
        if self.age == 2:
            parts[0]["b"] = np.full(2, 1.5, np.float32)
        return parts


class HasNaN(Sound):
    def wrong(self, *parts: Any) -> Any:
        if self.age == 2:
            parts[0]["b"] = np.full(2, np.nan, np.float32)
        return parts


class AllowsNothing(Sound):
    def wrong(self, *parts: Any) -> Any:
        if self.age == 2:
            parts[4]["b"] = {"action_mask": np.zeros(2, np.int8)}
        return parts


class LosesItsMask(Sound):
    def wrong(self, *parts: Any) -> Any:
        if self.age == 2:
            parts[4]["b"] = {}
        return parts


class ListsAnInfo(Sound):
    def wrong(self, *parts: Any) -> Any:
        if self.age == 2:
            parts[4]["b"] = ["an info"]
        return parts


class LacksAnInfo(Sound):
    def wrong(self, *parts: Any) -> Any:
        if self.age == 2:
            parts[4]["b"] = None
        return parts


class WaitsLate(Sound):
    """Has agents with nothing to decide, but not in its first steps."""

    steps = 0

    def wrong(self, *parts: Any) -> Any:
        self.steps += 1
        if self.steps > 20 and self.age == 1:
            parts[4]["b"]["no_decision"] = True
        return parts


class ReturnsFourValues(Sound):
    def wrong(self, *parts: Any) -> Any:
        return parts[:4] if self.age == 2 else parts


class RaisesAnError(Sound):
    def wrong(self, *parts: Any) -> Any:
        if self.age == 2:
            raise ZeroDivisionError("the field has no width")
        return parts


class RefusesEachReset(Sound):
    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Observations, Infos]:  # noqa: ARG002
        raise ValueError("no goal is free")


class FailsToClose(Sound):
    def close(self) -> None:
        raise RuntimeError("the window is gone")


class RefusesProgress(Sound):
    def set_progress(self, fraction: float) -> None:  # noqa: ARG002
        raise RuntimeError("not now")


class NeverEnds(Sound):
    def wrong(self, *parts: Any) -> Any:
        self.age = 1
        return parts


class IgnoresItsSeed(Sound):
    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Observations, Infos]:
        return super().reset(None if seed is None else 7, options)


class DrawsWithoutASeed(Sound):
    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Observations, Infos]:  # noqa: ARG002
        self.np_random = np.random.default_rng()
        return super().reset(None, options)


class SharesAGenerator(Sound):
    """All worlds of a process draw from the generator that was seeded last."""

    shared = np.random.default_rng(0)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Observations, Infos]:
        if seed is not None:
            SharesAGenerator.shared = np.random.default_rng(seed)
        return super().reset(seed, options)

    def _observations(self) -> Observations:
        return {agent: self.shared.random(2, np.float32) for agent in LIVES}


class NobodyCalledC(Sound):
    """Agent c may appear, and never does."""

    def __init__(self) -> None:
        super().__init__()
        self.possible_agents.append("c")
        self._spaces["c"] = self._spaces["a"]


class ShowsLargeImages(Sound):
    """Agent a sees an image of 240 x 320 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self._spaces["a"] = (gym.spaces.Box(0, 255, (240, 320), np.uint8), gym.spaces.Discrete(2))

    def _observations(self) -> Observations:
        return {**super()._observations(), "a": self.np_random.integers(0, 256, (240, 320), np.uint8)}


class EndsAtOnce(NobodyCalledC):
    """Agent c appears in the last step of the world."""

    def wrong(self, *parts: Any) -> Any:
        if self.age == 5:
            for part, value in zip(parts, (np.zeros(2, np.float32), 1.0, True, False, {}), strict=True):
                part["c"] = value
        return parts


class RewardsAStranger(Sound):
    def wrong(self, *parts: Any) -> Any:
        parts[1]["z"] = 1.0
        return parts


class LacksASpace(Sound):
    def action_space(self, agent: str) -> gym.Space[Any]:
        return {"a": gym.spaces.Discrete(2)}[agent]


class StartsWithNobody(Sound):
    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Observations, Infos]:  # noqa: ARG002
        self._start(seed, ())
        return {}, {}


class NimWithNobody(Nim):
    """By turns: no player is there after a reset."""

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        super().reset(seed, options)
        self.agents = []


class NimWithoutMoves(Nim):
    """By turns: the mask of the player who is on turn allows nothing once fewer than 3 stones are left."""

    def observe(self, agent: str) -> dict[str, Any]:
        seen = super().observe(agent)
        return {**seen, "action_mask": seen["action_mask"] * (self._left >= 3)}


class NimWithRevenge(Nim):
    """By turns: the loser is in the game again after both have been removed."""

    def step(self, action: Any) -> None:
        over = self.terminations[self.agent_selection]
        super().step(action)
        if over and not self.agents:
            self.agents, self.agent_selection = [PLAYERS[1]], PLAYERS[1]
            self.terminations[PLAYERS[1]] = False
