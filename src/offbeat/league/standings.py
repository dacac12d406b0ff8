"""Standings: the players of a match or league, the best first, for JSON and for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from offbeat.league.payoffs import Payoffs
from offbeat.league.ratings import Ratings

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Standing:
    """One player. `dataclasses.asdict` makes it JSON."""

    player: str
    games: float
    win_rate: float | None
    """Fraction of all its games that it has won, with a draw as half a win; None without a game."""
    rating: float
    """In Elo points."""
    error: float
    """Standard error of the rating, in points."""


def standings_of(payoffs: Payoffs, ratings: Ratings) -> list[Standing]:
    """Return the standings, the highest rating first. Players with equal ratings stay in their order.

    Args:
        payoffs: Results of the games.
        ratings: `fit_ratings` of the same results.
    """
    games, wins = payoffs.games.sum(axis=1), payoffs.wins.sum(axis=1)
    return [
        Standing(
            payoffs.players[i],
            float(games[i]),
            float(wins[i] / games[i]) if games[i] else None,
            float(ratings.rating[i]),
            float(ratings.error[i]),
        )
        for i in np.argsort(-ratings.rating, kind="stable")
    ]


def standings_table(standings: Sequence[Standing]) -> Table:
    """Return the standings as a table for a terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD)
    table.add_column("player", overflow="fold")
    for name in ("games", "win rate", "rating"):
        table.add_column(name, justify="right")
    for each in standings:
        rate = "-" if each.win_rate is None else f"{100 * each.win_rate:.1f} %"
        # Text: names may contain square brackets, which are markup elsewhere
        table.add_row(Text(each.player), f"{each.games:.0f}", rate, f"{each.rating:.0f} ± {each.error:.0f}")
    return table
