"""Games whose result is in the infos, and not in the rewards."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from offbeat.envs.testing.games import PLAYERS, Nim, RockPaperScissors
from offbeat.envs.testing.worlds import SmallWorld


class Scored(RockPaperScissors):
    """Rock, paper, scissors, whose rewards are shaped: 1 for each move. The result is `won` in the last infos."""

    def step(self, actions: Any) -> Any:
        observations, rewards, ends, cuts, infos = super().step(actions)
        if all(ends.values()):
            infos = {player: {"won": rewards[player]} for player in PLAYERS}
        return observations, dict.fromkeys(PLAYERS, 1.0), ends, cuts, infos


class ScoredForOne(Scored):
    """The same game, which reports the result of the second player only."""

    def step(self, actions: Any) -> Any:
        *others, infos = super().step(actions)
        return *others, {**infos, PLAYERS[0]: {}}


class ScoredNim(Nim):
    """Nim, whose result is also `won` in the last infos. Games have 4 to 7 steps."""

    def _take(self, count: int, player: str) -> None:
        super()._take(count, player)
        if self._left == 0:
            self.infos = {other: {"won": self.rewards[other]} for other in PLAYERS}


class EndsApart(SmallWorld):
    """Agents that end in different steps with an outcome: `early` in the first, `late` in the third.

    Their returns are 1 and 0.75. `absent` is a possible agent that never appears.
    """

    def __init__(self) -> None:
        spaces = (gym.spaces.Box(0, 1, (1,), np.float32), gym.spaces.Discrete(2))
        super().__init__(dict.fromkeys(("early", "late", "absent"), spaces))
        self._time = 0

    def reset(self, seed: int | None = None, options: Any = None) -> Any:  # noqa: ARG002
        self._start(seed, ("early", "late"))
        self._time = 0
        return self._observe(), {agent: {} for agent in self.agents}

    def step(self, actions: Any) -> Any:  # noqa: ARG002
        self._time += 1
        agents, won = self.agents, {"early": {"won": 1.0}, "late": {"won": 0.5}}
        ends = {agent: self._time == {"early": 1, "late": 3}[agent] for agent in agents}
        infos = {agent: won[agent] if ends[agent] else {} for agent in agents}
        rewards = {agent: {"early": 1.0, "late": 0.25}[agent] for agent in agents}
        step = self._observe(), rewards, ends, dict.fromkeys(agents, False), infos
        self.agents = [agent for agent in agents if not ends[agent]]
        return step

    def _observe(self) -> dict[str, Any]:
        return {agent: np.full(1, self._time / 3, np.float32) for agent in self.agents}
