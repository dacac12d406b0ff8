"""The columns of one policy in a league: they act with the players of their seats (seats.py).

A column is recorded if its player is the newest version of a policy that learns from the ticket. In the slot of the
ticket the rows of all other columns are blank: nothing of a frozen player can be learned from. Neither can anything of
a column whose agent has another policy in this episode: in the columns of this policy the agent is absent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offbeat.core.types import (
    ENV_STEP,
    FRAME_AGE,
    HISTORY,
    INITIAL_STATE,
    LAST_NO_DECISION,
    NOT_ENDED,
    Acted,
    Policy,
    Tree,
)
from offbeat.envs.contract import Envs, Outcome
from offbeat.league.players import LATEST, Player
from offbeat.workers.columns import PolicyColumns
from offbeat.workers.link import PolicyWork
from offbeat.workers.seats import Seats

_BLANK = {"info": np.nan, "episode_length": NOT_ENDED}
"""What is written into fields of columns that are not recorded, where it is not zero."""


class SeatedColumns(PolicyColumns):
    """See the module's docstring."""

    def __init__(
        self,
        envs: Envs,
        policy: Policy,
        transform_rewards: Callable[[NDArray[np.float32]], NDArray[np.float32]],
        seats: Seats,
        *,
        name: str,
        finishes: bool,
    ) -> None:
        """Act in `envs`, columns of worlds, with the players of `seats`.

        Args:
            envs: as for `PolicyColumns`.
            policy: the newest version of the policy.
            transform_rewards: as for `PolicyColumns`.
            name: name of the policy.
            seats: those of the actor.
            finishes: whether these columns tell the seats that a world was reset: those of the actor's first policy.
        """
        super().__init__(envs, policy, transform_rewards)
        self._seats, self._name, self._finishes = seats, name, finishes
        agents, columns = len(envs.spec.agents), envs.spec.columns
        self._world = np.arange(columns) // agents
        self._side = np.tile([seats.plan.side_of(agent) for agent in envs.spec.agents], columns // agents)
        outcome = seats.plan.config.outcome
        self._outcome = envs.spec.info.index(outcome) if outcome else None
        self._changes = -1
        """`Seats.changes` at the last call of `_take_seats`."""
        self._players: dict[Player, NDArray[np.int64]] = {}
        """Player of this policy -> its columns."""
        self._one_player = False
        """Whether all columns have the newest version of the policy."""
        self._is_recorded = np.zeros(columns, np.bool_)
        self._recorded = np.zeros((1, columns), np.bool_)
        """[T + 1, N]: which columns are recorded in each row of the ticket."""
        self._ends_ticket_before = np.zeros(columns, np.bool_)
        """[N]: where the observation of row 0 is also the last one of the ticket before, which recorded it."""

    def _take_seats(self) -> None:
        """Note who plays each column, if that has changed."""
        seats = self._seats
        if self._changes == seats.changes:
            return
        self._changes = seats.changes
        columns: dict[Player, list[int]] = {}
        for column, (world, side) in enumerate(zip(self._world, self._side, strict=True)):
            if (player := seats.players[world][side]).policy == self._name:
                columns.setdefault(player, []).append(column)
        self._players = {player: np.array(columns[player]) for player in sorted(columns)}
        self._one_player = len(columns.get(Player(self._name), ())) == len(self._world)
        self._is_recorded[:] = False
        for player, own in self._players.items():
            self._is_recorded[own] = seats.is_recorded(player)

    # --- a ticket -------------------------------------------------------------------------------------------

    def start_ticket(self, work: PolicyWork, version: int, progress: float, first: int) -> int:
        length = super().start_ticket(work, version, progress, first)
        self._take_seats()
        self._ends_ticket_before = self._recorded[-1]
        self._recorded = np.empty((length + 1, len(self._world)), np.bool_)
        self._recorded[:first] = True  # the reset row after episodes that were cut
        return length

    def ask(self, row: int, group: int) -> None:
        self._take_seats()
        columns = self._envs.groups[group]
        self._recorded[row, columns] = self._is_recorded[columns]
        super().ask(row, group)

    def _choose(self, observation: Tree, columns: slice, group: int, random: np.random.Generator) -> Acted:
        """Choose the actions of each player's columns, one player after the other."""
        if self._one_player:
            return super()._choose(observation, columns, group, random)
        count = columns.stop - columns.start
        action = np.zeros((count, *self._envs.spec.action.shape), self._envs.spec.action.dtype)
        recorded: Tree = {}
        for player, owned in self._players.items():
            own = owned[(owned >= columns.start) & (owned < columns.stop)]
            if not len(own):
                continue
            policy = self._policy if player.snapshot == LATEST else self._seats.frozen(player)
            state, rows = self._state[own], own - columns.start
            acted = policy.act({name: leaf[rows] for name, leaf in observation.items()}, random, state)
            self._state[own], action[rows] = state, acted.action
            for name, values in acted.recorded.items():
                part = recorded.setdefault(name, np.zeros((count, *values.shape[1:]), values.dtype))
                part[rows] = values
        return Acted(action, recorded)

    def _count_episodes(self, row: int, columns: slice, outcome: Outcome) -> bool:
        """Count as `PolicyColumns`; also note what each side has got, and finish the games of reset worlds."""
        assert outcome.env_step is not None
        agents = len(self._envs.spec.agents)
        worlds, sides, game_outcomes = self._world[columns], self._side[columns], self._seats.outcomes
        for index in np.flatnonzero(outcome.reward):
            game_outcomes.add_reward(worlds[index], sides[index], outcome.reward[index])
        ended = outcome.terminated | outcome.truncated
        if self._outcome is None:
            for index in np.flatnonzero(ended):
                game_outcomes.add_end(worlds[index], sides[index])
        else:
            values = outcome.info[:, self._outcome]
            reported = np.isfinite(values)
            for index in np.flatnonzero(reported & ended):
                game_outcomes.add_outcome(worlds[index], sides[index], values[index])
            for index in np.flatnonzero(~reported & outcome.truncated):
                game_outcomes.add_cut(worlds[index], sides[index])
        any_ended = super()._count_episodes(row, columns, outcome)
        if self._finishes and not (stepped := outcome.env_step[::agents]).all():
            for world in np.flatnonzero(~stepped).tolist():
                self._seats.finish(columns.start // agents + world)
        return any_ended

    def end_ticket(self, length: int) -> None:
        super().end_ticket(length)
        self._take_seats()
        self._recorded[length] = self._is_recorded
        frozen = ~self._recorded
        if frozen.any():
            self._blank(frozen)

    def _blank(self, frozen: NDArray[np.bool_]) -> None:
        """Write zeros, or what `_BLANK` has, over everything of columns that are not recorded; `frozen`: [T + 1, N].

        In row T this is only the observation: in a replay, the other fields of that row belong to an older ticket,
        which the learner may not have removed yet.
        """
        unseen = frozen.copy()
        unseen[0] &= ~self._ends_ticket_before
        for name, array in self._slot.items():
            if name in self._leaves or name == FRAME_AGE:
                array[unseen] = 0
            elif name == LAST_NO_DECISION:
                array[frozen[-1]] = False
            elif name.startswith(HISTORY):
                array[:, frozen[0]] = 0
            elif name == INITIAL_STATE:
                array[frozen[0]] = 0
            elif name not in (ENV_STEP, "behavior_version"):
                array[:-1][frozen[:-1]] = _BLANK.get(name, 0)

    # --- snapshots ------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any] | None:
        state = super().snapshot()
        return None if state is None else {**state, "recorded": self._recorded[-1].copy()}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._recorded = np.array(state["recorded"], np.bool_)[None]
        self._changes = -1
