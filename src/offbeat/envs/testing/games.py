"""Small games of two players with known optimal play: one with simultaneous moves, one with turns.

Read `worlds.py` first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from offbeat.envs.contract import State
from offbeat.envs.testing.correct_action import require_argument_at_least
from offbeat.envs.testing.worlds import Infos, Observations, ParallelStep, SmallWorld

PLAYERS = ("player_0", "player_1")


class RockPaperScissors(SmallWorld):
    """Both players move at the same time: rock (0), paper (1) or scissors (2).

    The winner of a round gets 1, the loser -1. An observation has the one-hot moves of the last round, the player's own
    first; zeros in the first round. The value of the game is 0, and only the uniform policy cannot be beaten.

    Args:
        rounds: Number of rounds in an episode.
    """

    def __init__(self, rounds: int = 1) -> None:
        require_argument_at_least("rounds", rounds, 1)
        spaces = (gym.spaces.Box(0, 1, (6,), np.float32), gym.spaces.Discrete(3))
        super().__init__(dict.fromkeys(PLAYERS, spaces))
        self._rounds, self._played = rounds, 0
        self._moves: tuple[int, int] | None = None

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Observations, Infos]:  # noqa: ARG002
        self._start(seed, PLAYERS)
        self._played, self._moves = 0, None
        return self._observe(), {player: {} for player in PLAYERS}

    def step(self, actions: Mapping[str, Any]) -> ParallelStep:
        first, second = (int(actions[player]) for player in PLAYERS)
        won = float((0, 1, -1)[(first - second) % 3])
        self._moves, self._played = (first, second), self._played + 1
        over = self._played == self._rounds
        if over:
            self.agents = []
        ends, none = dict.fromkeys(PLAYERS, over), dict.fromkeys(PLAYERS, False)
        return self._observe(), {PLAYERS[0]: won, PLAYERS[1]: -won}, ends, none, {player: {} for player in PLAYERS}

    def _observe(self) -> Observations:
        if self._moves is None:
            return {player: np.zeros(6, np.float32) for player in PLAYERS}
        own = [np.eye(3, dtype=np.float32)[move] for move in self._moves]
        return {PLAYERS[0]: np.concatenate(own), PLAYERS[1]: np.concatenate(own[::-1])}

    def snapshot(self) -> State:
        moves = None if self._moves is None else np.array(self._moves)
        return {"played": self._played, "over": not self.agents, "moves": moves}

    def restore(self, state: State) -> None:
        self.agents = [] if state["over"] else list(PLAYERS)
        self._played = state["played"]
        moves = state["moves"]
        self._moves = None if moves is None else (int(moves[0]), int(moves[1]))


class Nim(SmallWorld):
    """Two players take 1 to `most` stones by turns; who takes the last one gets 1, the other -1. PettingZoo's AEC API.

    Action a takes a + 1 stones. An observation is a Dict of the one-hot number of stones that are left, and a mask of
    the moves, all zeros where the player is not on turn. The first player wins if `stones` is not divisible by
    `most + 1`: it always leaves a number that is.

    Args:
        stones: Number of stones at the start.
        most: Largest number of stones in one move.
    """

    def __init__(self, stones: int = 7, most: int = 2) -> None:
        require_argument_at_least("stones", stones, 1)
        require_argument_at_least("most", most, 1)
        parts = {
            "observation": gym.spaces.Box(0, 1, (stones + 1,), np.float32),
            "action_mask": gym.spaces.MultiBinary(most),
        }
        super().__init__(dict.fromkeys(PLAYERS, (gym.spaces.Dict(parts), gym.spaces.Discrete(most))))
        self._stones, self._most = stones, most
        self.agent_selection = PLAYERS[0]
        self._set_up(stones)

    def reset(self, seed: int | None = None, options: Any = None) -> None:  # noqa: ARG002
        self._start(seed, PLAYERS)
        self.agent_selection = PLAYERS[0]
        self._set_up(self._stones)

    def step(self, action: Any) -> None:
        """Take stones; with None, remove the selected player, whose game has ended.

        Raises:
            ValueError: the move takes more stones than are left.
        """
        player = self.agent_selection
        if self.terminations[player]:
            self.agents.remove(player)
        else:
            self._take(int(action) + 1, player)
        self.agent_selection = PLAYERS[1 - PLAYERS.index(player)]

    def observe(self, agent: str) -> dict[str, Any]:
        moves = min(self._left, self._most) if agent == self.agent_selection else 0
        left = np.eye(self._stones + 1, dtype=np.float32)[self._left]
        return {"observation": left, "action_mask": (np.arange(self._most) < moves).astype(np.int8)}

    def last(self, observe: bool = True) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        player = self.agent_selection
        observation = self.observe(player) if observe else None
        return observation, self.rewards[player], self.terminations[player], False, self.infos[player]

    def snapshot(self) -> State:
        return {"left": self._left, "over": not self.agents, "turn": PLAYERS.index(self.agent_selection)}

    def restore(self, state: State) -> None:
        self.agents = [] if state["over"] else list(PLAYERS)
        self.agent_selection = PLAYERS[state["turn"]]
        self._set_up(state["left"])

    def _set_up(self, left: int) -> None:
        self._left = left
        self.rewards = dict.fromkeys(PLAYERS, 0.0)
        self.terminations, self.truncations = dict.fromkeys(PLAYERS, False), dict.fromkeys(PLAYERS, False)
        self.infos: Infos = {player: {} for player in PLAYERS}

    def _take(self, count: int, player: str) -> None:
        if count > self._left:
            raise ValueError(f"{player} took {count} stones, but only {self._left} are left")
        self._left -= count
        if self._left == 0:
            self.rewards = {other: 1.0 if other == player else -1.0 for other in PLAYERS}
            self.terminations = dict.fromkeys(PLAYERS, True)
