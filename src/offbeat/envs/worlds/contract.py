"""The world contract: an env with several agents, as the adapters provide it. Read `envs/contract.py` first.

A *world* is one env in which several agents act, at the same time or by turns. Each of its possible agents is a column.
`Worlds` (worlds.py) steps the worlds of one actor and writes the rows of each column. There are three kinds of rows:

* A *decision*: the agent is alive and chooses the action. The row is valid.
* A *row without a decision*: the agent is alive, and it is not its turn. Its reward is credited to its last decision,
  and the row may end its episode.
* A *reset row*: the agent is absent. It has not appeared yet, or its episode is over and the world continues.

Each agent has its own end. The row after it has the agent's true last observation. The world is reset once no agent is
left; all its columns then have a reset row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import gymnasium as gym

from offbeat.core.types import EnvSpec
from offbeat.envs.contract import State

PoliciesOf = Callable[[int, int], Mapping[str, str]]
"""Returns the policy of each agent in an episode, from the index of the world and the number of the episode. A world
counts its episodes from 0, from the last reset of all worlds."""


class WorldStep(NamedTuple):
    """What a reset or a step of a world returns. Absent agents are missing in all parts.

    An agent that ends in this step is still in all parts but `deciding`, with its last observation.
    """

    observations: Mapping[str, Any]
    """The observation of each agent for its next row."""
    rewards: Mapping[str, float]
    """What each agent got since the last step. Empty after a reset."""
    terminations: Mapping[str, bool]
    truncations: Mapping[str, bool]
    """Whether the agent's episode ends here. Empty after a reset."""
    infos: Mapping[str, Mapping[str, Any]]
    deciding: Collection[str]
    """The agents that choose the actions of the next step."""
    over: bool = False
    """Whether no agent is left: the world is reset next."""

    def ends(self, agent: str) -> bool:
        """Whether this agent ends here."""
        return bool(self.terminations.get(agent) or self.truncations.get(agent))


class World(Protocol):
    """One env with several agents."""

    env: Any
    """The env itself. It may have the methods `set_progress` and `set_parameters`."""
    agents: tuple[str, ...]
    """Names of all agents that may appear, in an order that never changes."""
    turns: bool
    """Whether agents act by turns, so that columns have rows without a decision."""
    frame_skip: int
    """Simulated frames per step of the world; 1 if the env does not declare it."""

    def observation_space(self, agent: str) -> gym.Space[Any]: ...

    def action_space(self, agent: str) -> gym.Space[Any]: ...

    def reset(self, seed: int | None) -> WorldStep:
        """Start a new episode of the world; a `seed` starts a new random stream, None continues the last one.

        Exceptions of the env are not caught: `Worlds` reports them.
        """
        ...

    def step(self, actions: Mapping[str, Any]) -> WorldStep:
        """Step with the actions of exactly the agents in the last `deciding`."""
        ...

    def render(self) -> Any:
        """Return the picture of the current state, if the world was made with a render mode."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class WorldSnapshots(Protocol):
    """A world whose complete state, its random numbers included, can be saved between two steps."""

    def snapshot(self) -> State: ...

    def restore(self, state: State) -> None:
        """Restore the state of a `snapshot`, also into a newly made world. It needs no reset."""
        ...


@runtime_checkable
class ReportsLater(Protocol):
    """A world that reports what an agent gets for an action in a later step than that of the action."""

    def unreported_rewards(self) -> Mapping[str, float]:
        """Return what each living agent has earned that no step has reported yet."""
        ...

    def unreported_infos(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the infos of living agents that no step has reported yet."""
        ...


@runtime_checkable
class WorldAdapter(Protocol):
    """One library of worlds. Its module has an instance of it, named `ADAPTER`."""

    def make_world(self, env_id: str, kwargs: Mapping[str, Any], render_mode: str | None = None) -> World:
        """Make one world. It is `WorldSnapshots` too if its state can be saved.

        Args:
            env_id: Id as the user typed it, with the adapter's prefix.
            kwargs: Arguments of the env's constructor.
            render_mode: 'human' or 'rgb_array'; None: `render` is not called.

        Raises:
            ConfigError: there is no such env, a package is missing, the constructor has no argument of that name, or
                the env cannot be rendered in this mode.
        """
        ...

    def ids(self) -> list[str]:
        """Return the ids, prefixes included, of all worlds that can be used here."""
        ...


@dataclass(frozen=True)
class WorldSpec:
    """The agents of a world, and the spaces of each."""

    id: str
    agents: tuple[tuple[str, EnvSpec], ...]
    """Names of all possible agents in the world's order, each with the spec of one column of it."""

    @property
    def check_command(self) -> str:
        """The command that checks the same world, for messages."""
        return self.agents[0][1].check_command

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all possible agents."""
        return tuple(name for name, _ in self.agents)

    def spec_of(self, agent: str) -> EnvSpec:
        """Return the spec of one column of an agent."""
        return dict(self.agents)[agent]
