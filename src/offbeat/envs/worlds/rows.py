"""The rows of the columns that one policy owns in the worlds of an actor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np

from offbeat.core.errors import ConfigError
from offbeat.core.types import Array, EnvSpec
from offbeat.envs.actions import action_encoder, add_to_episodes, random_actions, split_columns
from offbeat.envs.contract import State
from offbeat.envs.episode_infos import EpisodeInfos
from offbeat.envs.infos import info_reader
from offbeat.envs.rows import Fault, RowChecks, empty_rows, named, only_numbers, rows_of
from offbeat.envs.worlds.contract import WorldSpec
from offbeat.envs.writers import writers_of


def spec_of_policy(world: WorldSpec, policy: str, agents: Sequence[str], worlds: int) -> EnvSpec:
    """Return the spec of the columns that a policy has in `worlds` worlds, those of one world next to each other.

    Args:
        world: agents and spaces of one world.
        policy: name of the policy.
        agents: names of its agents, in the order of the world.
        worlds: number of worlds.

    Raises:
        ConfigError: the agents have different observations or actions.
    """
    first = world.spec_of(agents[0])
    for agent in agents[1:]:
        spec = world.spec_of(agent)
        for what, one, other in (
            ("observations", first.observation, spec.observation),
            ("actions", first.action, spec.action),
        ):
            if one != other:
                raise ConfigError(
                    f"the policy {policy} has the agents {agents[0]} and {agent} of {world.id}, whose {what} differ: "
                    "give each kind of agent its own policy, with a table [policies.NAME] or --policies separate"
                )
    return replace(first, columns=worlds * len(agents), agents=tuple(agents), policy=policy)


class PolicyRows:
    """The rows of one policy, and what its columns do in the next row. The arrays are overwritten by each step."""

    def __init__(self, spec: EnvSpec, groups: Sequence[slice]) -> None:
        """Make the arrays.

        Args:
            spec: spec of the columns, from `spec_of_policy`.
            groups: worlds of each group.
        """
        self.spec, columns = spec, spec.columns
        self.agents = len(spec.agents)
        """Columns of each world."""
        self.groups = tuple(self.columns_of(group) for group in groups)
        self.rows = empty_rows(spec.observation, columns, spec.info)._replace(
            no_decision=np.zeros(columns, np.bool_), env_step=np.zeros(columns, np.bool_)
        )
        self.next_invalid = np.ones(columns, np.bool_)
        """[N]: whether the next row has no decision of the agent: it is absent, or it is not its turn."""
        self.next_no_decision = np.zeros(columns, np.bool_)
        """[N]: whether the next row is a row without a decision: the agent is alive, and it is not its turn."""
        self.actions: list[Any] = [None] * columns
        """The action of each column for the next step, as its env takes it."""
        self.sent = [False] * len(groups)
        """Whether a group has the actions of its next step."""
        self.returns, self.lengths = np.zeros(columns), np.zeros(columns, np.int32)
        """[N]: return and length so far of the episodes, during `Worlds.advance`."""
        self.infos = EpisodeInfos(spec.info, columns)
        """The numbers in their infos so far, during `Worlds.advance`."""
        self.outcomes = [rows_of(self.rows, group) for group in self.groups]
        self._encode = action_encoder(spec.action)
        self.read_info = info_reader(spec.info, self.rows.info)
        """Reads the numbers of `info_metrics` from an info into the row of a column."""
        self._checks = [
            RowChecks(spec, rows, group.start, self.next_invalid[group])
            for rows, group in zip(self.outcomes, self.groups, strict=True)
        ]

    def columns_of(self, worlds: slice) -> slice:
        """Return the columns of some worlds."""
        return slice(worlds.start * self.agents, worlds.stop * self.agents)

    def fault(self, group: int) -> Fault | None:
        """Return the column of a row with NaN, infinity, or a mask that allows nothing; None if there is none."""
        return self._checks[group].fault()

    def send(self, actions: Array, group: int) -> None:
        """Store the recorded actions of a group, [n, *shape]."""
        self.actions[self.groups[group]] = split_columns(self.spec.action, self._encode(actions))
        self.sent[group] = True

    def set_random(self, world: int, random: np.random.Generator) -> None:
        """Choose uniform random, allowed actions for the columns of one world."""
        columns, spec = self.columns_of(slice(world, world + 1)), self.spec
        mask = self.rows.observation[spec.mask][columns] if spec.mask else None
        self.actions[columns] = split_columns(
            spec.action, self._encode(random_actions(spec.action, self.agents, random, mask))
        )

    def add_to_episodes(self, world: int) -> None:
        """Add the last row of one world to its episodes; where one has ended, the next one starts."""
        columns = self.columns_of(slice(world, world + 1))
        rows = rows_of(self.rows, columns)
        add_to_episodes(rows, self.returns[columns], self.lengths[columns])
        self.infos.add_outcome(rows, columns)

    def start_row(self, columns: slice, stepped: Array) -> None:
        """Start the next row of some columns, with the kinds of rows that the last step has determined.

        Args:
            columns: the columns of adjacent worlds.
            stepped: whether each of these worlds is stepped, and not reset, [worlds].
        """
        rows = self.rows
        assert rows.no_decision is not None
        assert rows.env_step is not None
        np.logical_not(self.next_invalid[columns], out=rows.valid[columns])
        rows.no_decision[columns] = self.next_no_decision[columns]
        rows.env_step[columns.start : columns.stop : self.agents] = stepped
        rows.reward[columns] = 0
        rows.terminated[columns] = False
        rows.truncated[columns] = False
        rows.info[columns] = np.nan

    def snapshot(self) -> State:
        """Return a copy of the rows, and what the columns do in the next row."""
        rows = {name: part.copy() for name, part in named(self.rows).items()}
        # "idle" and "waits" are the names in checkpoints.
        return {"rows": rows, "idle": self.next_invalid.copy(), "waits": self.next_no_decision.copy()}

    def restore(self, state: State) -> None:
        """Restore what `snapshot` returned."""
        for name, part in named(self.rows).items():
            part[...] = state["rows"][name]
        self.next_invalid[:], self.next_no_decision[:] = state["idle"], state["waits"]


class AgentColumn:
    """The column of one agent of one world: writes what the agent gets into it."""

    def __init__(self, rows: PolicyRows, index: int, space: gym.Space[Any]) -> None:
        """Write into the column with this index; `space`: the observation space of its agent."""
        self.rows, self.index, self.actions = rows, index, rows.actions
        self.rewards = only_numbers(rows.rows.reward)
        self._terminated, self._truncated = rows.rows.terminated, rows.rows.truncated
        # `leaf[index, ...]` is a view also for leaves without axes, where `leaf[index]` is a number.
        targets = {name: leaf[index, ...] for name, leaf in rows.rows.observation.items()}
        self.write, self._write_mask = writers_of(rows.spec, space, targets)
        """The first writes an observation into the next row. It raises ValueError for a wrong one."""
        self.reads_info = bool(rows.spec.info) or self._write_mask is not None
        self.lacks_mask = rows.spec.mask is None and bool(rows.spec.action.nvec)
        """Whether the agent has choices, and no mask of them is read."""

    def write_info(self, info: Mapping[str, Any]) -> None:
        """Write what an info has: the mask of the next action, and the numbers of `info_metrics`."""
        self.rows.read_info(self.index, info)
        self.write_mask(info)

    def write_mask(self, info: Mapping[str, Any]) -> None:
        """Write the mask of the next action from an info, if infos have it."""
        if self._write_mask is not None:
            self._write_mask(info)

    def add_unreported(self, reward: float, info: Mapping[str, Any]) -> None:
        """Add to the reward of the current row, and write the numbers of an info."""
        self.rows.rows.reward[self.index] += reward
        self.rows.read_info(self.index, info)

    def end(self, *, terminated: bool, truncated: bool) -> None:
        """End the agent's episode in the current row."""
        self._terminated[self.index] = terminated
        self._truncated[self.index] = truncated and not terminated

    def set_next(self, *, alive: bool, decides: bool) -> None:
        """Set what the column does in the next row."""
        self.rows.next_invalid[self.index] = not decides
        self.rows.next_no_decision[self.index] = alive and not decides
