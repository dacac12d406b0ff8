"""Worlds of PettingZoo's AEC API (agent environment cycle): agents act one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from offbeat.envs.adapters.pettingzoo.agents import AgentsOfEnv
from offbeat.envs.worlds.contract import WorldStep


class TurnWorld(AgentsOfEnv):
    """An `AECEnv`. One step of the world is the action of one living agent.

    An agent's reward is the cumulative reward that `last` returns when the agent is selected again: all that it earned
    since its last action. So is its info, which is empty while the agent waits: the env keeps it until then, and its
    numbers would count again in each step. An agent that has ended is removed, with its last reward and info, in the
    step in which the env selects it.
    """

    turns = True

    def reset(self, seed: int | None) -> WorldStep:
        """Start a new episode of the env.

        Raises:
            ValueError: an unlisted agent appeared.
        """
        self.seed_spaces(seed)
        self.env.reset(seed=seed)
        step = self._collected()
        infos = {**step.infos, **self.unreported_infos()}  # those of agents that wait may have masks
        return step._replace(rewards={}, terminations={}, truncations={}, infos=infos)

    def step(self, actions: Mapping[str, Any]) -> WorldStep:
        """Step with the action of the selected agent, then remove the agents that have ended.

        Raises:
            ValueError: an unlisted agent appeared, or the env did not remove an agent that has ended.
        """
        self.env.step(actions[self.env.agent_selection])
        return self._collected()

    def _collected(self) -> WorldStep:
        """Remove agents that have ended until a living one is selected, and return what all of them got."""
        env = self.env
        step = WorldStep({}, {}, {}, {}, {}, ())
        deciding: tuple[str, ...] = ()
        while env.agents and not deciding:
            agent = env.agent_selection
            last = env.last()
            for part, value in zip(_parts(step), last, strict=True):
                part[agent] = value
            if last[2] or last[3]:
                self._remove(agent)
            else:
                deciding = (agent,)
        self._add_waiting(step)
        self._require_known(step.observations)
        return step._replace(deciding=deciding, over=not deciding)

    def _add_waiting(self, step: WorldStep) -> None:
        """Add the agents that are not selected. What they earn, and their infos, are reported when they are."""
        for agent in self._waiting():
            values: tuple[Any, ...] = self.env.observe(agent), 0.0, False, False, {}
            for part, value in zip(_parts(step), values, strict=True):
                part[agent] = value

    def unreported_rewards(self) -> dict[str, float]:
        """Return what the agents that are not selected have earned since their last actions."""
        env = self.env
        earned: Mapping[str, float] = getattr(getattr(env, "unwrapped", env), "_cumulative_rewards", {})
        return {agent: float(earned.get(agent, 0.0)) for agent in self._waiting()}

    def unreported_infos(self) -> dict[str, Any]:
        """Return the infos of the agents that are not selected."""
        return {agent: self.env.infos.get(agent, {}) for agent in self._waiting()}

    def _waiting(self) -> list[str]:
        return [agent for agent in self.env.agents if agent != self.env.agent_selection]

    def _remove(self, agent: str) -> None:
        self.env.step(None)
        if agent in self.env.agents:
            raise ValueError(f"the agent {agent!r} has ended, but step(None) did not remove it from the env's agents")


def _parts(step: WorldStep) -> tuple[Any, ...]:
    """Return the dicts of a step, in the order of what `last` returns."""
    return step.observations, step.rewards, step.terminations, step.truncations, step.infos
