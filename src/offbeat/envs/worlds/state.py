"""The agents of one world: who is alive, who chooses the next actions, and where each agent writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from offbeat.core.errors import FAILURES, EnvFailed
from offbeat.core.types import INFO_MASK
from offbeat.envs.contract import State
from offbeat.envs.failures import failed, fault_of_world
from offbeat.envs.findings import fault_of_ends
from offbeat.envs.worlds.contract import ReportsLater, World, WorldSpec, WorldStep
from offbeat.envs.worlds.rows import AgentColumn


class WorldState:
    """See the module's docstring."""

    def __init__(
        self, spec: WorldSpec, index: int, columns: Mapping[str, Mapping[str, AgentColumn]], world: World
    ) -> None:
        """Make the state before the first reset.

        Args:
            spec: of the world, for messages.
            index: of the world.
            columns: agent -> policy -> where the agent writes in an episode in which it has this policy.
            world: the world itself.
        """
        self._world = world
        self._spec, self._index, self._columns_by_policy = spec, index, columns
        self._columns = {agent: next(iter(own.values())) for agent, own in columns.items()}
        """The column of each agent in the current episode. In its other columns it is absent."""
        self._policies: Mapping[str, str] = {}
        """Policy of each agent in the current episode; empty: each agent has only one."""
        self._alive: dict[str, AgentColumn] = {}
        self._ended: set[str] = set()
        """Agents whose episodes have ended while the world continues."""
        self._deciding: list[str] = []
        self.over, self.had_no_decision = True, False
        """Whether the world is reset next; and whether an agent has had a row without a decision so far."""
        self._stepped = False
        """Whether the types of rewards and flags have been checked, in the first step."""
        self._steps = 0
        """Steps of the world since its last reset."""

    def set_policies(self, policies: Mapping[str, str]) -> None:
        """Set the policy of each agent for an episode."""
        self._policies = dict(policies)
        self._columns = {agent: own[policies[agent]] for agent, own in self._columns_by_policy.items()}

    def reset(self, seed: int | None) -> None:
        """Start a new episode of the world."""
        self._alive, self._ended, self._deciding, self._steps = {}, set(), [], 0
        for own in self._columns_by_policy.values():
            for column in own.values():
                column.set_next(alive=False, decides=False)
        try:
            step = self._world.reset(seed)
            self._add_new(step)
            self._set_next(step)
            if not self._alive:
                raise ValueError("it left no agent alive: start each episode with at least one agent")
        except FAILURES as error:
            raise self._failed(error) from error

    def step(self, limit: int | None) -> None:
        """Step the world with the actions of the agents that choose one; truncate the episode at the limit."""
        columns = self._columns
        self._steps += 1
        try:
            actions = {agent: (column := columns[agent]).actions[column.index] for agent in self._deciding}
            step = self._world.step(actions)
            if not self._stepped:
                self._stepped = True
                self._require_types(step)
            ended = self._written(step)
            if self._steps == limit and not step.over:
                ended = self._truncate(ended)
                step = step._replace(observations={}, deciding=(), over=True)  # nobody appears in a cut episode
            # `_write` has found all that are alive in both. So equal lengths mean that they have no others.
            same = not ended and not step.over and len(step.observations) == len(step.rewards) == len(self._alive)
            if not same:
                self._refuse_dead(step)
                self._remove(ended)
                self._add_new(step)
                self._set_next(step)
            elif self._deciding != list(step.deciding):
                self._set_next(step)
        except FAILURES as error:
            raise self._failed(error) from error

    def _require_types(self, step: WorldStep) -> None:
        """Raise ValueError for rewards or flags that NumPy would convert, such as text or None."""
        for agent in self._alive.keys() & step.rewards.keys():
            ends = step.terminations.get(agent, False), step.truncations.get(agent, False)
            if fault := fault_of_ends(step.rewards[agent], *ends, in_world=True):
                raise ValueError(f"agent {agent}: {fault}")

    def _written(self, step: WorldStep) -> list[str]:
        """Call `_write`; name the agent if it got nothing, or what it got is not a number."""
        try:
            return self._write(step)
        except KeyError:
            self._require_complete(step)
            raise
        except (TypeError, ValueError):
            self._require_types(step)
            raise

    def _require_complete(self, step: WorldStep) -> None:
        """Raise ValueError for a living agent that another dict than the observations lacks."""
        for agent, column in self._alive.items():
            for name in ("rewards", "terminations", "truncations", *["infos"] * column.reads_info):
                if agent not in getattr(step, name):
                    raise ValueError(
                        f"agent {agent} has no value in {name}: return {name} for each agent until it ends"
                    )

    def _write(self, step: WorldStep) -> list[str]:
        """Write what the living agents get; return the agents whose episodes end."""
        observations, rewards, terminations, truncations, infos = step[:5]
        ended = []
        for agent, column in self._alive.items():
            if agent not in observations:
                raise ValueError(
                    f"agent {agent} is missing, but it was neither terminated nor truncated before: return all five "
                    "values for each agent until it ends"
                )
            try:
                column.write(observations[agent])
                column.rewards[column.index] = rewards[agent]
                if terminations[agent] or truncations[agent]:
                    column.end(terminated=bool(terminations[agent]), truncated=bool(truncations[agent]))
                    ended.append(agent)
                if column.lacks_mask:
                    self._refuse_mask(agent, infos)
                if column.reads_info:
                    column.write_info(infos[agent])
            except ValueError as error:
                raise _with_agent(agent, error) from error
        return ended

    def _refuse_mask(self, agent: str, infos: Mapping[str, Any]) -> None:
        """Raise ValueError if the info of an agent has a mask although no masks of such agents are read."""
        info = infos.get(agent)
        if info and isinstance(info, Mapping) and INFO_MASK in info:
            raise ValueError(
                f"{INFO_MASK!r} is in its info, but the infos of the first reset of the world had none for it, so its "
                "masks are not read: give masks in the infos of reset and of each step, or in the observations"
            )

    def _truncate(self, ended: Sequence[str]) -> list[str]:
        """Truncate the agents that have not ended; return all agents whose episodes end."""
        rest = [agent for agent in self._alive if agent not in ended]
        for agent in rest:
            self._alive[agent].end(terminated=False, truncated=True)
        if isinstance(self._world, ReportsLater):
            rewards, infos = self._world.unreported_rewards(), self._world.unreported_infos()
            for agent in rest:
                self._alive[agent].add_unreported(rewards.get(agent, 0.0), infos.get(agent, {}))
        return list(self._alive)

    def _refuse_dead(self, step: WorldStep) -> None:
        """Raise ValueError if an agent that ended in an earlier step gets a reward or acts again."""
        for agent in self._ended:
            if step.rewards.get(agent):
                raise ValueError(
                    f"agent {agent} got a reward of {step.rewards[agent]}, but its episode has ended before: give the "
                    "reward in the step in which the agent ends"
                )
            if agent in step.deciding:
                raise ValueError(
                    f"agent {agent} is alive again, but its episode has ended before: give an agent that comes back "
                    "another name, or remove it from the env's agents"
                )

    def _remove(self, ended: Sequence[str]) -> None:
        for agent in ended:
            self._alive.pop(agent).set_next(alive=False, decides=False)
        self._ended.update(ended)

    def _add_new(self, step: WorldStep) -> None:
        """Add the agents that have appeared."""
        for agent, observation in step.observations.items():
            if agent in self._alive or agent in self._ended:
                continue
            if agent not in self._columns:
                raise ValueError(
                    f"agent {agent} appears, but it is not one of the world's possible agents: list all agents that "
                    "may appear in the env's possible_agents"
                )
            if step.ends(agent):
                raise ValueError(f"agent {agent} appeared and ended in the same step: leave it out of this step")
            column = self._alive[agent] = self._columns[agent]
            try:
                column.write(observation)
                if column.lacks_mask:
                    self._refuse_mask(agent, step.infos)
                column.write_mask(step.infos.get(agent, {}))  # it has no step whose numbers would count
            except ValueError as error:
                raise _with_agent(agent, error) from error

    def _set_next(self, step: WorldStep) -> None:
        """Set who chooses the next actions."""
        self._deciding, self.over = list(step.deciding), step.over
        if step.over and self._alive:
            raise ValueError(
                f"agent {next(iter(self._alive))} is missing, but it was neither terminated nor truncated: terminate "
                "or truncate each agent that leaves the env's agents"
            )
        if not self._alive.keys() >= set(self._deciding):
            agent = min(set(self._deciding) - self._alive.keys())
            raise ValueError(
                f"agent {agent} is to act, but it has ended or has no observation: return an observation for each "
                "agent in the env's agents"
            )
        for agent, column in self._alive.items():
            decides = agent in self._deciding
            column.set_next(alive=True, decides=decides)
            self.had_no_decision |= not decides

    @property
    def call(self) -> str:
        """The last call of the world, for messages."""
        return f"step {self._steps} of the episode" if self._steps else "reset()"

    def _failed(self, error: BaseException) -> EnvFailed:
        what = fault_of_world(self.call, error)
        return failed(self._spec.id, self._index, what, error, unit="world", command=self._spec.check_command)

    def snapshot(self) -> State:
        """Return who is alive and who chooses the next actions."""
        return {
            "alive": list(self._alive),
            "ended": sorted(self._ended),
            "deciding": list(self._deciding),
            "over": self.over,
            "agents_wait": self.had_no_decision,
            "steps": self._steps,
            "policies": dict(self._policies),
        }

    def restore(self, saved: State) -> None:
        """Restore what `snapshot` returned."""
        if saved["policies"]:
            self.set_policies(saved["policies"])
        self._alive = {agent: self._columns[agent] for agent in saved["alive"]}
        self._ended, self._deciding = set(saved["ended"]), list(saved["deciding"])
        self.over, self.had_no_decision, self._steps = saved["over"], saved["agents_wait"], saved["steps"]


def _with_agent(agent: str, error: ValueError) -> ValueError:
    """Return the error for a wrong value that an agent got."""
    return ValueError(f"agent {agent}: {error}")
