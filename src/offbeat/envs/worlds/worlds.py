"""`Worlds` steps the worlds of one actor, whose columns belong to one or several policies.

    worlds = make_worlds(...)
    worlds.envs["adversary"].send(actions)      # the actions of each policy's columns
    worlds.envs["good"].send(actions)
    worlds.envs["adversary"].recv()             # the first `recv` steps the worlds, the others only read
    worlds.envs["good"].recv()

The env steps of all policies' columns are the same: what exists once per world (a reset, a step, a snapshot) is done by
the first policy that asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from offbeat.config.curriculum import Parameter
from offbeat.core.closing import close_all_or_warn
from offbeat.core.errors import FAILURES
from offbeat.core.types import Array, EnvSpec, Tree
from offbeat.envs.contract import Advanced, Envs, Outcome, State
from offbeat.envs.failures import failed, fault_of_call
from offbeat.envs.progress import progress_setters
from offbeat.envs.worlds.contract import PoliciesOf, World, WorldSnapshots, WorldSpec
from offbeat.envs.worlds.rows import AgentColumn, PolicyRows, spec_of_policy
from offbeat.envs.worlds.state import WorldState


class Worlds:
    """The worlds of one actor, in one or more groups that can be stepped in turn."""

    def __init__(
        self,
        spec: WorldSpec,
        worlds: Sequence[World],
        owners: Mapping[str, Sequence[str]],
        *,
        groups: Sequence[slice],
        seeds: Sequence[int],
        limit: int | None = None,
        curriculum: Sequence[Parameter] = (),
        policies_of: PoliciesOf | None = None,
    ) -> None:
        """Make the columns of all policies.

        Args:
            spec: agents and spaces of one world.
            worlds: the worlds, all of the same kind.
            owners: the agents of each policy, by its name. Each agent has one policy; with `policies_of` it may have
                several.
            groups: worlds of each group.
            seeds: one seed per world.
            limit: steps after which an episode of a world is truncated, for all agents that are left; None: never.
            curriculum: parameters of the worlds that change with the training progress.
            policies_of: returns the policy that each agent has in the episode that a reset starts; None: each agent
                has only one. In the columns of its other policies the agent is absent.
        """
        self._policies_of = policies_of
        self._spec, self._worlds, self._groups, self._seeds = spec, tuple(worlds), tuple(groups), list(seeds)
        self._limit = limit
        self._policies = {
            policy: PolicyRows(spec_of_policy(spec, policy, agents, len(worlds)), groups)
            for policy, agents in owners.items()
        }
        self._states = [
            WorldState(spec, index, self._columns_of(index, world, owners), world) for index, world in enumerate(worlds)
        ]
        self._progress_setters = [progress_setters(world.env, curriculum, spec.id) for world in worlds]
        self._seeded = False
        self._episodes = [0] * len(self._worlds)
        """Episodes that each world has started since the last reset of all worlds."""
        self._resets, self._advances = _Once(), _Once()
        kind = SnapshotPolicyEnvs if all(isinstance(world, WorldSnapshots) for world in worlds) else PolicyEnvs
        self.envs: dict[str, Envs] = {
            policy: kind(self, rows, index) for index, (policy, rows) in enumerate(self._policies.items())
        }
        """The columns of each policy."""

    def _columns_of(
        self, index: int, world: World, owners: Mapping[str, Sequence[str]]
    ) -> dict[str, dict[str, AgentColumn]]:
        """Return agent -> policy -> its column in a world, the agents in the world's order."""
        columns: dict[str, dict[str, AgentColumn]] = {agent: {} for agent in world.agents}
        for policy, agents in owners.items():
            rows = self._policies[policy]
            for number, agent in enumerate(agents):
                space = world.observation_space(agent)
                columns[agent][policy] = AgentColumn(rows, index * rows.agents + number, space)
        return {agent: own for agent, own in columns.items() if own}

    # --- what the columns of the policies call ---------------------------------------------------------------

    def set_progress(self, progress: float) -> None:
        """Pass the training progress to the worlds that use it."""
        for world, setters in enumerate(self._progress_setters):
            try:
                for set_progress in setters:
                    set_progress(progress)
            except FAILURES as error:
                what = fault_of_call(f"set_progress({progress})", error)
                command = self._spec.check_command
                raise failed(self._spec.id, world, what, error, unit="world", command=command) from error

    def reset(self, caller: int) -> None:
        """Start a new episode in every world, if the caller is the first of the policies to ask."""
        if not self._resets.is_first(caller):
            return
        self._episodes = [0] * len(self._worlds)
        for index, seed in enumerate(self._seeds):
            self._reset(index, None if self._seeded else seed)
        self._seeded = True
        for rows in self._policies.values():
            rows.rows.terminated[:] = rows.rows.truncated[:] = False
        self._check(range(len(self._groups)))

    def _reset(self, index: int, seed: int | None) -> None:
        """Start a new episode of one world."""
        state = self._states[index]
        if self._policies_of is not None:
            state.set_policies(self._policies_of(index, self._episodes[index]))
        self._episodes[index] += 1
        state.reset(seed)

    def restart_streams(self) -> None:
        """Make the next reset seed the worlds as the first one did, so that the same games can be played again."""
        self._seeded = False

    def advance(
        self, caller: int, steps: NDArray[np.int64], random: np.random.Generator, before_step: Callable[[], None]
    ) -> None:
        """Take `steps[w]` random steps in world w, if the caller is the first of the policies to ask."""
        if not self._advances.is_first(caller):
            return
        policies = self._policies.values()
        for rows in policies:
            rows.returns[:], rows.lengths[:], rows.infos.numbers[:] = 0, 0, np.nan
        for group, members in enumerate(self._groups):
            for world in range(members.start, members.stop):
                for _ in range(steps[world]):
                    before_step()
                    for rows in policies:
                        rows.set_random(world, random)
                    self._step(slice(world, world + 1), group)
                    for rows in policies:
                        rows.add_to_episodes(world)

    def step(self, group: int) -> None:
        """Step the worlds of a group, if that has not been done since the last `send`.

        Raises:
            EnvFailed: a world raised an exception, or returned NaN, a wrong shape, or something for an absent agent.
        """
        policies = self._policies.values()
        if all(rows.sent[group] for rows in policies):
            for rows in policies:
                rows.sent[group] = False
            self._step(self._groups[group], group)

    def _step(self, worlds: slice, group: int) -> None:
        states = self._states[worlds]
        stepped = np.array([not state.over for state in states])
        for rows in self._policies.values():
            rows.start_row(rows.columns_of(worlds), stepped)
        for index, state in enumerate(states, worlds.start):
            if state.over:
                self._reset(index, None)
            else:
                state.step(self._limit)
        self._check([group])

    def _check(self, groups: Sequence[int] | range) -> None:
        for rows in self._policies.values():
            for group in groups:
                fault = rows.fault(group)
                if fault is not None:
                    world, agent = divmod(fault.column, rows.agents)
                    where = f"{self._states[world].call}: agent {rows.spec.agents[agent]}"
                    what = f"{where}: {fault.what}"
                    raise failed(self._spec.id, world, what, unit="world", command=self._spec.check_command)

    @property
    def had_no_decision(self) -> bool:
        """Whether an agent has had a row without a decision so far."""
        return any(state.had_no_decision for state in self._states)

    @property
    def over(self) -> NDArray[np.bool_]:
        """[worlds]: where the last step left no agent, so that the next row is the world's reset row."""
        return np.array([state.over for state in self._states])

    def snapshot(self) -> State:
        """Return the state of all worlds between two steps. All of them must be savable."""
        return {
            "id": self._spec.id,
            "worlds": {
                str(index): {
                    "world": world.snapshot(),
                    "agents": state.snapshot(),
                    "episodes": self._episodes[index],
                }
                for index, (world, state) in enumerate(zip(self._worlds, self._states, strict=True))
                if isinstance(world, WorldSnapshots)
            },
        }

    def restore(self, saved: State) -> None:
        """Restore what `snapshot` returned, also into newly made worlds."""
        for index, (world, state) in enumerate(zip(self._worlds, self._states, strict=True)):
            if isinstance(world, WorldSnapshots):
                world.restore(saved["worlds"][str(index)]["world"])
            state.restore(saved["worlds"][str(index)]["agents"])
            self._episodes[index] = int(saved["worlds"][str(index)]["episodes"])
        self._seeded = True

    def close(self) -> None:
        """Close all worlds."""
        worlds, self._worlds = self._worlds, ()
        close_all_or_warn(worlds, self._spec.id)


class _Once:
    """Lets the first of several callers do the work of a round. A caller that asks again starts the next round."""

    def __init__(self) -> None:
        self._served: set[int] = set()

    def is_first(self, caller: int) -> bool:
        """Whether the caller is the first one of a round."""
        first = not self._served or caller in self._served
        self._served = {caller} if first else self._served | {caller}
        return first


class PolicyEnvs:
    """The columns of one policy in the worlds of an actor: `Envs` as in the env contract."""

    def __init__(self, worlds: Worlds, rows: PolicyRows, index: int) -> None:
        """Make the columns of the policy with this index among the policies of the worlds."""
        self.spec: EnvSpec = rows.spec
        self.groups = rows.groups
        self._worlds, self._rows, self._index = worlds, rows, index

    @property
    def offers_mask(self) -> bool:
        """False: `WorldState` refuses masks that are not read."""
        return False

    @property
    def reports_no_decision(self) -> bool:
        """Whether an agent has had a row without a decision so far."""
        return self._worlds.had_no_decision

    @property
    def next_no_decision(self) -> NDArray[np.bool_]:
        """[N]: whether the next row of each column is without a decision."""
        return self._rows.next_no_decision

    def set_progress(self, progress: float) -> None:
        self._worlds.set_progress(progress)

    def reset(self) -> Tree:
        self._worlds.reset(self._index)
        return self._rows.rows.observation

    def advance(
        self, steps: NDArray[np.int64], random: np.random.Generator, before_step: Callable[[], None] = lambda: None
    ) -> Advanced:
        """Take random steps in each world: the largest number of its columns. See `Worlds.advance`."""
        self._worlds.advance(self._index, steps.reshape(-1, self._rows.agents).max(axis=1), random, before_step)
        rows = self._rows
        return Advanced(rows.rows.observation, rows.returns, rows.lengths, rows.infos.numbers)

    def send(self, actions: Array, group: int = 0) -> None:
        self._rows.send(actions, group)

    def recv(self, group: int = 0) -> Outcome:
        self._worlds.step(group)
        return self._rows.outcomes[group]

    def close(self) -> None:
        self._worlds.close()


class SnapshotPolicyEnvs(PolicyEnvs):
    """Columns of worlds whose whole state can be saved. The first policy's snapshot has the worlds."""

    def snapshot(self) -> State:
        return {"columns": self._rows.snapshot(), "worlds": self._worlds.snapshot() if self._index == 0 else None}

    def restore(self, state: State) -> None:
        self._rows.restore(state["columns"])
        if self._index == 0:
            self._worlds.restore(state["worlds"])
