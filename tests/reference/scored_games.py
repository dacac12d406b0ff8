"""Games whose result is in the infos, and not in the rewards."""

from __future__ import annotations

from typing import Any

from offbeat.envs.testing.games import PLAYERS, RockPaperScissors


class Scored(RockPaperScissors):
    """Rock, paper, scissors, whose rewards are shaped: 1 for each move. The result is `won` in the last infos."""

    def step(self, actions: Any) -> Any:
        observations, rewards, ends, cuts, infos = super().step(actions)
        if all(ends.values()):
            infos = {player: {"won": rewards[player]} for player in PLAYERS}
        return observations, dict.fromkeys(PLAYERS, 1.0), ends, cuts, infos
