"""Worlds of PettingZoo's parallel API: all living agents act at the same time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from offbeat.core.types import NO_DECISION
from offbeat.envs.adapters.pettingzoo.agents import AgentsOfEnv
from offbeat.envs.findings import kind_of
from offbeat.envs.worlds.contract import WorldStep


class ParallelWorld(AgentsOfEnv):
    """A `ParallelEnv`. Agents may appear late and may end in different steps.

    If the info of an agent has a true 'no_decision', the agent does not act in the next step: the env's `step` then
    gets no action of this agent.
    """

    turns = False

    def reset(self, seed: int | None) -> WorldStep:
        """Start a new episode of the env.

        Raises:
            ValueError: the env returned something else than (observations, infos), or an unlisted agent appeared.
        """
        self.seed_spaces(seed)
        returned = self.env.reset(seed=seed)
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise ValueError(f"reset() returned {kind_of(returned)}, but (observations, infos) is expected")
        observations, infos = returned
        return WorldStep(observations, {}, {}, {}, infos, self._deciding(infos))

    def step(self, actions: Mapping[str, Any]) -> WorldStep:
        """Step the env with the actions of all agents that decide.

        Raises:
            ValueError: the env returned something else than five values, or an unlisted agent appeared.
        """
        returned = self.env.step(actions)
        if not isinstance(returned, tuple) or len(returned) != 5:
            raise ValueError(
                f"step() returned {kind_of(returned)}, but (observations, rewards, terminations, truncations, infos) "
                "is expected"
            )
        observations, rewards, terminations, truncations, infos = returned
        over = not self.env.agents
        return WorldStep(observations, rewards, terminations, truncations, infos, self._deciding(infos), over)

    def _deciding(self, infos: Any) -> Collection[str]:
        agents = tuple(self.env.agents)
        self._require_known(agents)
        if not infos and isinstance(infos, Mapping):
            return agents
        undecided = _without_decision(agents, infos)
        return tuple(agent for agent in agents if agent not in undecided) if undecided else agents


def _without_decision(agents: Collection[str], infos: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the agents whose infos have a true 'no_decision'.

    Raises:
        ValueError: an info is not a dict.
    """
    try:
        return [agent for agent in agents if infos.get(agent, {}).get(NO_DECISION)]
    except AttributeError:
        raise ValueError(_wrong_infos(infos)) from None


def _wrong_infos(infos: Any) -> str:
    """Return the fault of infos that are not dicts."""
    for agent, info in infos.items() if isinstance(infos, Mapping) else ():
        if not isinstance(info, Mapping):
            return f"the info of agent {agent} is {kind_of(info)}, not a dict"
    return f"infos is {kind_of(infos)}, not a dict with an info for each agent"
