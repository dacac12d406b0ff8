"""The payoff matrix: how many games each pair of players has played, and how many were won."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from offbeat.core.types import F64

UNKNOWN = 0.5
"""Win rate of two players that have not met."""


@dataclass(frozen=True, eq=False)
class Payoffs:
    """Games between P players. Their numbers may be fractions, because older games can count less."""

    players: tuple[str, ...]
    """Name of each player."""
    games: F64
    """[P, P], symmetric, 0 on the diagonal: games of player i against player j."""
    wins: F64
    """[P, P]: games of i against j that i has won; a draw is half a win of each. `wins + wins.T` equals `games`."""

    @classmethod
    def count(cls, players: Sequence[str], scores: Iterable[tuple[int, int, float]]) -> Payoffs:
        """Return the matrix of a list of games.

        Args:
            players: Names of the players.
            scores: For each game, the indices i and j of two players, and the score of i: 1, 0.5 or 0.
        """
        wins = np.zeros((len(players), len(players)))
        for i, j, score in scores:
            wins[i, j] += score
            wins[j, i] += 1 - score
        return cls(tuple(players), wins + wins.T, wins)

    @property
    def win_rates(self) -> F64:
        """[P, P]: fraction of the games against j that i has won; 0.5 if they have not met."""
        return np.divide(self.wins, self.games, out=np.full_like(self.wins, UNKNOWN), where=self.games > 0)
