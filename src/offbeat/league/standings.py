"""Standings: the players of a match or league, the best first, for JSON and for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from offbeat.league.payoffs import Payoffs
from offbeat.league.ratings import Ratings

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Standing:
    """One player. `dataclasses.asdict` makes it JSON."""

    player: str
    agents: tuple[str, ...]
    """The agents that the player can play for. Only the ratings of players with the same agents can be compared."""
    games: float
    win_rate: float | None
    """Fraction of all its games that it has won, with a draw as half a win; None without a game."""
    rating: float | None
    """In Elo points; None if there is no other player of the same agents."""
    error: float | None
    """Standard error of the rating, in points; None if there is no rating."""


def standings_of(payoffs: Payoffs, ratings: Ratings, agents: Sequence[tuple[str, ...]]) -> list[Standing]:
    """Return the standings: players of the same agents together, and of these the highest rating first.

    Players with equal ratings stay in their order.

    Args:
        payoffs: Results of the games.
        ratings: `fit_ratings` of the same results, with the agents as groups.
        agents: The agents that each player can play for.
    """
    games, wins = payoffs.games.sum(axis=1), payoffs.wins.sum(axis=1)
    groups = list(dict.fromkeys(agents))
    rated = [agents.count(each) > 1 for each in agents]
    return [
        Standing(
            payoffs.players[i],
            agents[i],
            float(games[i]),
            float(wins[i] / games[i]) if games[i] else None,
            float(ratings.rating[i]) if rated[i] else None,
            float(ratings.error[i]) if rated[i] else None,
        )
        for i in sorted(range(len(agents)), key=lambda i: (groups.index(agents[i]), -ratings.rating[i]))
    ]


def standings_table(standings: Sequence[Standing]) -> Table:
    """Return the standings as a table for a terminal, with a part for the players of the same agents."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD)
    table.add_column("player", overflow="fold")
    for name in ("games", "win rate", "rating"):
        table.add_column(name, justify="right")
    for number, each in enumerate(standings):
        if number and each.agents != standings[number - 1].agents:
            table.add_section()
        rate = "-" if each.win_rate is None else f"{each.win_rate:.1%}"
        rating = "-" if each.rating is None else f"{each.rating:.0f} ± {each.error:.0f}"
        # Text: names may contain square brackets, which are markup elsewhere
        table.add_row(Text(each.player), f"{each.games:.0f}", rate, rating)
    return table
