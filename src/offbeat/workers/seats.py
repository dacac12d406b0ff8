"""Seats: who plays each side in the worlds of one actor of a league.

At the start of each episode of a world, the player of each side is drawn: the newest version of a policy, or one of its
snapshots. The draw is a function of (seed, ticket, world, episode) and of the league's table as of the version of the
weights. `SeatedColumns` (seated_columns.py) act with these players.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from offbeat.config.league import LeagueConfig
from offbeat.core.pace import Pace
from offbeat.league.opponents import OpponentOdds, draw
from offbeat.league.players import LATEST, Player
from offbeat.league.sides import Side
from offbeat.league.turns import learning_policies, learning_side
from offbeat.memory.league import LeagueMemory
from offbeat.models.acting import ActingPolicy, make_policy
from offbeat.models.spec import PolicySpec


@dataclass(frozen=True)
class LeaguePlan:
    """What actors and learners of a league need to know, as plain data."""

    config: LeagueConfig
    sides: tuple[Side, ...]
    trained: tuple[str, ...]
    """The policies that are trained."""

    @property
    def policies(self) -> tuple[str, ...]:
        """Policy of each side."""
        return tuple(side.policy for side in self.sides)

    def side_of(self, agent: str) -> int:
        """Return the index of the side that an agent is on."""
        return next(index for index, side in enumerate(self.sides) if agent in side.agents)


class Seats:
    """Who plays each side in the worlds of one actor, and what the sides have got in the current games."""

    def __init__(
        self, plan: LeaguePlan, pace: Pace, specs: Mapping[str, PolicySpec], *, seed: int, actor: int, worlds: int
    ) -> None:
        """Make seats without players.

        Args:
            plan: the league.
            pace: says which learning step a ticket is used in.
            specs: the policies, by name.
            seed: seed of the run.
            actor: index of the actor.
            worlds: number of worlds of each actor.
        """
        self.plan, self._pace, self._specs = plan, pace, specs
        self._seed, self._first_world = seed, actor * worlds
        self.players: list[tuple[Player, ...]] = [()] * worlds
        """Players of each world's sides; (): not drawn yet."""
        self.learning: Collection[str] = ()
        """The policies that learn from the current ticket."""
        self.changes = 0
        """Counts the changes of players and of who learns."""
        sides = len(plan.sides)
        self._returns = np.zeros((worlds, sides))
        """Sums of the rewards of each side in the current game."""
        self._outcomes = np.full((worlds, sides), np.nan)
        """Sums of the outcomes that the env has reported for each side in the current game; NaN: none so far."""
        self._reports = np.zeros((worlds, sides), np.int64)
        """Number of agents of each side for which the env has reported an outcome."""
        self._agents = np.array([len(side.agents) for side in plan.sides])
        self._advanced = np.zeros(worlds, np.bool_)
        """Whether random steps were taken in the current game, before its first ticket: it has no result."""
        self._episodes = [0] * worlds
        """Episodes that have started in each world in the current ticket."""
        self._frozen: dict[Player, ActingPolicy] = {}
        self._odds: tuple[int, OpponentOdds] | None = None
        """The odds of the version that was used last."""

    # --- draws ----------------------------------------------------------------------------------------------

    def start_ticket(self, ticket: int, version: int, memory: LeagueMemory) -> None:
        """Start a ticket that acts with this version of the weights; draw the players of worlds that have none."""
        config = self.plan.config
        self.learning = learning_policies(config, self.plan.trained, self._pace.step_of(ticket))
        self.changes += 1
        self._ticket, self._memory, self._results = ticket, memory, memory.results(ticket)
        self._results.games[0] = 0
        self._episodes = [0] * len(self.players)
        if self._odds is None or self._odds[0] != version:
            counts, cumulative = memory.odds(version)
            self._odds = version, OpponentOdds(self.plan.policies, counts.copy(), cumulative.copy())
        for world, players in enumerate(self.players):
            if not players:
                self._draw(world)

    def _draw(self, world: int) -> None:
        """Draw the players of the next episode of a world."""
        assert self._odds is not None
        side = learning_side(self.plan.policies, self.learning, self._first_world + world)
        episode = self._episodes[world]
        self._episodes[world] += 1
        self.players[world] = draw(
            self._odds[1], seed=self._seed, side=side, ticket=self._ticket, world=world, episode=episode
        )
        self.changes += 1
        for player in self.players[world]:
            if player.snapshot != LATEST and player not in self._frozen:
                self._load(player, self._memory.snapshot(player.policy, player.snapshot))
        in_use = {player for players in self.players for player in players}
        self._frozen = {player: policy for player, policy in self._frozen.items() if player in in_use}

    def _load(self, player: Player, vector: Any) -> None:
        policy = make_policy(self._specs[player.policy])
        policy.load(vector)
        self._frozen[player] = policy

    def frozen(self, player: Player) -> ActingPolicy:
        """Return the policy of a snapshot that plays in one of the worlds."""
        return self._frozen[player]

    def is_recorded(self, player: Player) -> bool:
        """Whether the columns of a player are learned from in the current ticket."""
        return player.snapshot == LATEST and player.policy in self.learning

    # --- games ----------------------------------------------------------------------------------------------

    def add_reward(self, world: int, side: int, reward: float) -> None:
        """Add the reward of an agent of a side in a row."""
        self._returns[world, side] += reward

    def add_outcome(self, world: int, side: int, outcome: float) -> None:
        """Add the result that the env has reported for an agent of a side."""
        self._outcomes[world, side] = np.nansum((self._outcomes[world, side], outcome))
        self._reports[world, side] += 1

    def finish(self, world: int) -> None:
        """Write the result of the game that has ended in a world, and draw the players of the next one.

        A game has no result if it began with random steps, or if a limit cut it before the env reported an outcome.
        """
        outcomes = self._returns[world] / self._agents
        if self.plan.config.outcome:
            outcomes = self._outcomes[world] / np.maximum(self._reports[world], 1)
        if not self._advanced[world] and not np.isnan(outcomes).all():
            number = int(self._results.games[0])
            self._results.players[number] = [player.snapshot for player in self.players[world]]
            self._results.outcomes[number] = outcomes
            self._results.games[0] = number + 1
        self._advanced[world] = False
        self._returns[world], self._outcomes[world], self._reports[world] = 0, np.nan, 0
        self._draw(world)

    def drop_games(self, *, advanced: bool) -> None:
        """Forget the current games: new episodes start; `advanced`: with random steps, without results."""
        self.players = [()] * len(self.players)
        self._returns[:], self._outcomes[:], self._reports[:], self._advanced[:] = 0, np.nan, 0, advanced

    # --- snapshots ------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state between two tickets, with the weights of the snapshots that play."""
        return {
            "players": [[player.snapshot for player in players] for players in self.players],
            "returns": self._returns.copy(),
            "outcomes": self._outcomes.copy(),
            "reports": self._reports.copy(),
            "advanced": self._advanced.copy(),
            "frozen": {
                policy: {
                    str(player.snapshot): frozen.vector.copy()
                    for player, frozen in self._frozen.items()
                    if player.policy == policy
                }
                for policy in dict.fromkeys(self.plan.policies)
            },
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue the games of a snapshot."""
        names = self.plan.policies
        self.players = [tuple(map(Player, names, numbers)) for numbers in state["players"]]
        self._returns[:], self._outcomes[:] = state["returns"], state["outcomes"]
        self._reports[:], self._advanced[:] = state["reports"], state["advanced"]
        self._frozen.clear()
        for policy, vectors in state["frozen"].items():
            for number, vector in vectors.items():
                self._load(Player(policy, int(number)), vector)
