"""Draws the opponents of an episode.

The draw is a pure function of (seed, ticket, world, episode) and of the league's table as of the version of the weights
that the ticket acts with. So all runtimes draw the same opponents with lag exact.

Win rates are read once per table, in `OpponentOdds.of`. A draw then takes about as long as making its random stream.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from offbeat.config.league import LeagueConfig, Weighting
from offbeat.core.seeding import stream
from offbeat.core.types import F64
from offbeat.league.players import Player
from offbeat.league.table import LeagueTable

ABOUT_ZERO = 1e-10
"""If the weights of all snapshots add up to less, all are equally likely."""


@dataclass(frozen=True, eq=False)
class OpponentOdds:
    """The probabilities of all opponents as of one version of the weights.

    The two arrays have fixed shapes, so they can be published together with the weights.
    """

    policies: tuple[str, ...]
    """The P policies of the game."""
    snapshots: NDArray[np.int64]
    """[P]: number of snapshots of each policy."""
    cumulative: F64
    """[P, P, window + 1]: cumulative probabilities of the opponents of policy p among the players of policy q. First
    comes the newest version, then the snapshots of the window, oldest first. Unused places repeat the 1 at the end."""

    @classmethod
    def of(cls, config: LeagueConfig, table: LeagueTable, policies: Sequence[str]) -> OpponentOdds:
        """Return the odds for a table.

        Args:
            config: How opponents are drawn.
            table: The table as of the version of the weights.
            policies: Names of the policies of the game, each once.
        """
        odds = [[_cumulative(config, table, policy, other) for other in policies] for policy in policies]
        snapshots = np.array([len(table.snapshots[policy]) for policy in policies], np.int64)
        return cls(tuple(policies), snapshots, np.array(odds, np.float64))

    @cached_property
    def lotteries(self) -> dict[tuple[str, str], tuple[list[float], list[Player]]]:
        """(policy, policy of the opponent) -> (cumulative probabilities, players)."""
        policies, places = self.policies, self.cumulative.shape[2] - 1
        players = {
            policy: [Player(policy), *(Player(policy, number) for number in range(max(0, count - places), count))]
            for policy, count in zip(policies, self.snapshots.tolist(), strict=True)
        }
        return {
            (policy, other): (self.cumulative[i, j].tolist(), players[other])
            for i, policy in enumerate(policies)
            for j, other in enumerate(policies)
        }


def draw(
    odds: OpponentOdds, policies: Sequence[str], *, seed: int, side: int, ticket: int, world: int, episode: int
) -> tuple[Player, ...]:
    """Return the player of each side in one episode. The learning side is played by the newest version of its policy.

    Opponents of several sides are independent.

    Args:
        odds: The odds as of the version of the weights that the ticket acts with.
        policies: Policy of each side in the episode.
        seed: Seed of the run.
        side: Index of the learning side.
        ticket: Ticket in which the episode starts.
        world: Index of the world, among those of the actor.
        episode: Number of episodes that have started in this world earlier in the same ticket.
    """
    uniform = stream(seed, "league", ticket, world, episode).random(len(policies)).tolist()
    policy, lotteries = policies[side], odds.lotteries
    players = []
    for index, other in enumerate(policies):
        cumulative, choices = lotteries[policy, other]
        players.append(choices[0 if index == side else bisect_right(cumulative, uniform[index])])
    return tuple(players)


def priority(win_rate: float, weighting: Weighting) -> float:
    """Return the weight of an opponent in prioritized fictitious self-play (Vinyals et al. 2019, AlphaStar)."""
    if weighting == "squared":
        return (1 - win_rate) ** 2
    return win_rate * (1 - win_rate) if weighting == "variance" else 1 - win_rate


def _cumulative(config: LeagueConfig, table: LeagueTable, policy: str, other: str) -> F64:
    """Return the cumulative probabilities, [window + 1], of the players of policy `other`."""
    count = len(table.snapshots[other])
    window = range(max(0, count - config.window), count)
    probabilities = np.zeros(config.window + 1)
    if not window or config.opponents == "latest":
        probabilities[0] = 1.0
    else:
        probabilities[0] = config.latest_ratio
        shares = _shares(config, [table.win_rate(Player(policy), Player(other, number)) for number in window])
        probabilities[1 : len(window) + 1] = (1 - config.latest_ratio) * shares
    cumulative = np.cumsum(probabilities)
    cumulative[np.flatnonzero(probabilities)[-1] :] = 1.0  # exactly, so that nothing after it is ever drawn
    return cumulative


def _shares(config: LeagueConfig, win_rates: Sequence[float]) -> F64:
    """Return the probability of each snapshot, given that one is drawn."""
    equal = np.full(len(win_rates), 1 / len(win_rates))
    if config.opponents != "prioritized":
        return equal
    weights = np.array([priority(rate, config.weighting) for rate in win_rates])
    total = weights.sum()
    return weights / total if total > ABOUT_ZERO else equal
