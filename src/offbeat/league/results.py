"""Results of games: an outcome of each side, and the scores of the pairs of players that follow from it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from offbeat.league.players import Player

RELATIVE, ABSOLUTE = 1e-6, 1e-9
"""Outcomes that differ by less are equal: sums of the same rewards in another order differ in the last digits."""


class PairScore(NamedTuple):
    """What one game says of two players."""

    first: Player
    second: Player
    score: float
    """Of `first`: 1 for a win, 0.5 for a draw, 0 for a loss."""


class GameResult(NamedTuple):
    """One finished game."""

    players: tuple[Player, ...]
    """The player of each side."""
    outcomes: tuple[float, ...]
    """The outcome of each side, a finite number. The higher of two outcomes wins."""

    def pairs(self) -> Iterator[PairScore]:
        """Yield the scores of each pair of sides. A player's game against itself says nothing and is left out."""
        for i, first in enumerate(self.players):
            for j in range(i + 1, len(self.players)):
                if first != self.players[j]:
                    yield PairScore(first, self.players[j], score_of(self.outcomes[i], self.outcomes[j]))


def score_of(mine: float, other: float) -> float:
    """Return the score of a side against another one, from the outcomes of both: 1, 0.5 or 0."""
    if math.isclose(mine, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE):
        return 0.5
    return 1.0 if mine > other else 0.0
