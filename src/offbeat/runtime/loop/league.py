"""The league of a run, in the process of its training loop: results become a table, and weights become snapshots.

It is advanced once in each learning step, after the weights are published and before actors may use them. So the table
that belongs to a version of the weights is the same in every runtime.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from offbeat.core.errors import EnvFailed
from offbeat.core.pace import Pace
from offbeat.core.policy_names import policy_key
from offbeat.league.opponents import OpponentOdds
from offbeat.league.plan import LeaguePlan
from offbeat.league.players import Player
from offbeat.league.results import GameResult
from offbeat.league.table import LeagueTable
from offbeat.league.turns import snapshots_due
from offbeat.memory.league import LeagueMemory
from offbeat.memory.weights import Weights


class League:
    """The table of a league, and its snapshots in memory."""

    def __init__(self, plan: LeaguePlan, pace: Pace, memory: LeagueMemory, weights: Mapping[str, Weights]) -> None:
        """Start a league.

        Args:
            plan: the league.
            pace: the pace of the run.
            memory: what learners and actors share.
            weights: the published weights of each policy.
        """
        self._plan, self._pace, self._memory, self._weights = plan, pace, memory, weights
        self._policies = plan.policies
        self.table = LeagueTable.start(self._policies, plan.config.initial_elo)
        self._games = 0

    def start(self) -> None:
        """Take the first snapshots, of version 0, and publish the odds of that version."""
        self._take_snapshots(0)

    def advance(self, step: int, env_steps: int) -> None:
        """Finish learning step `step`, whose version of the weights has just been published.

        Args:
            step: the learning step.
            env_steps: env steps that have been learned from, those of this step included.

        Raises:
            EnvFailed: the env has not reported the outcome of a side.
        """
        tickets = self._pace.tickets_of(step) if self._pace.is_first_use(step) else ()
        results = [result for ticket in tickets for result in self._results_of(ticket)]
        self._games += len(results)
        self.table = self.table.advance(results, self._plan.config)
        self._take_snapshots(env_steps)

    def _results_of(self, ticket: int) -> Iterator[GameResult]:
        games, policies, snapshots, outcomes = self._memory.results(ticket)
        for number in range(games[0]):
            names = [self._policies[index] for index in policies[number]]
            players = tuple(map(Player, names, snapshots[number].tolist()))
            self._require_outcomes(outcomes[number].tolist())
            yield GameResult(players, tuple(outcomes[number].tolist()))

    def _require_outcomes(self, outcomes: Sequence[float]) -> None:
        """Refuse a game in which the env has reported an outcome of one side, but none of another one."""
        for side, outcome in zip(self._plan.sides, outcomes, strict=True):
            if math.isnan(outcome):
                name = self._plan.config.outcome
                raise EnvFailed(
                    f"the env has reported {name}, the outcome of the league, for one side of a game, but not for "
                    f"{', '.join(side.agents)}: put {name} into the infos of the last steps of these agents, or name "
                    "another number with --set league.outcome=NAME. If these agents do not appear in each game, leave "
                    "league.outcome out"
                )

    def _take_snapshots(self, env_steps: int) -> None:
        """Take the snapshots that are due, then publish the odds of the newest version."""
        version = self.table.version
        # A policy that does not learn has only the first snapshot.
        for policy in snapshots_due(self._plan.config, self._plan.trained, version) if version else self._policies:
            number = len(self.table.snapshots[policy])
            self._memory.snapshot(policy, number)[:] = self._weights[policy].read(version)
            self.table = self.table.with_snapshot(policy, env_steps)
        odds = OpponentOdds.of(self._plan.config, self.table, self._policies)
        counts, cumulative = self._memory.odds(version)
        counts[:], cumulative[:] = odds.snapshots, odds.cumulative

    def window(self, policy: str) -> range:
        """Return the ids of a policy's snapshots in the window, the oldest first."""
        count = len(self.table.snapshots[policy])
        return range(max(0, count - self._plan.config.window), count)

    def snapshot(self, policy: str, number: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Return the published weights of a snapshot of the window, a copy."""
        return self._memory.snapshot(policy, number).copy()

    def win_rate(self, policy: str) -> float | None:
        """Return the mean win rate of a policy's newest version against the snapshots of the window that it has met.

        They are those of the policies on the other sides. None: it has met none.
        """
        sides = self._plan.sides
        others = dict.fromkeys(
            name
            for i, other in enumerate(sides)
            for j, own in enumerate(sides)
            if policy in own.policies and i != j
            for name in other.policies
        )
        opponents = [Player(other, number) for other in others for number in self.window(other)]
        met = [
            self.table.win_rate(Player(policy), each) for each in opponents if self.table.has_met(Player(policy), each)
        ]
        return sum(met) / len(met) if met else None

    def metrics(self) -> dict[str, float]:
        """Return metrics: the rating of each policy, its win rate against its window, and the number of games."""
        metrics = {"league_games": float(self._games)}
        for policy in self._policies:
            taken = len(self.table.snapshots[policy])
            metrics[policy_key(policy, "elo")] = self.table.elo[Player(policy)]
            metrics[policy_key(policy, "snapshots")] = float(taken)
            if (win_rate := self.win_rate(policy)) is not None:
                metrics[policy_key(policy, "win_rate")] = win_rate
        return metrics

    # --- checkpoints ----------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        arrays = {name: array.copy() for name, array in self._memory.arrays().items()}
        return {"table": self.table.state(), "games": self._games, "arrays": arrays}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self.table, self._games = LeagueTable.restore(state["table"]), int(state["games"])
        for name, array in self._memory.arrays().items():
            array[...] = state["arrays"][name]
