"""Worlds of three agents whose envs cost nothing and misbehave as those of `envs`. Each agent has an env of its own.

They have PettingZoo's APIs, without that package. Worker processes import this, so it does without torch.
"""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from benchmarks.soak.envs import env_of

EVERY = 7
"""Steps between the arrivals of two agents in `Late`."""


class Team:
    """All agents act at the same time; the episode of each ends by itself."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}
    possible_agents: ClassVar[list[str]] = ["red_0", "blue_0", "blue_1"]

    def __init__(self, shapes: str, behaviour: str) -> None:
        """Make the envs; `shapes` has one for each agent, with commas between them."""
        pairs = zip(self.possible_agents, shapes.split(","), strict=True)
        self._envs: dict[str, Any] = {agent: env_of(shape, behaviour) for agent, shape in pairs}
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> gym.Space[Any]:
        space: gym.Space[Any] = self._envs[agent].observation_space
        return space

    def action_space(self, agent: str) -> gym.Space[Any]:
        space: gym.Space[Any] = self._envs[agent].action_space
        return space

    def reset(self, seed: int | None = None, options: Any = None) -> Any:  # noqa: ARG002
        self.agents = list(self.possible_agents)
        rows = self._reset_envs(seed)
        return rows, {agent: {} for agent in rows}

    def _reset_envs(self, seed: int | None) -> dict[str, Any]:
        """Reset the envs of all agents; return what they observe."""
        seeds = {agent: None if seed is None else seed + index for index, agent in enumerate(self.possible_agents)}
        return {agent: env.reset(seed=seeds[agent])[0] for agent, env in self._envs.items()}

    def step(self, actions: Any) -> Any:
        rows = {agent: self._envs[agent].step(actions[agent]) for agent in self.agents}
        self.agents = [agent for agent, row in rows.items() if not (row[2] or row[3])]
        return tuple({agent: row[part] for agent, row in rows.items()} for part in range(5))

    def close(self) -> None:
        """Do nothing."""

    def snapshot(self) -> dict[str, Any]:
        envs = {
            agent: env.snapshot() | {"random": env.np_random.bit_generator.state} for agent, env in self._envs.items()
        }
        return {"alive": self._flags(self.agents), "envs": envs}

    def restore(self, state: dict[str, Any]) -> None:
        for agent, env in self._envs.items():
            saved = dict(state["envs"][agent])
            env.np_random.bit_generator.state = saved.pop("random")
            env.restore(saved)
        self.agents = self._listed(state["alive"])

    def _flags(self, agents: Any) -> Any:
        return np.array([agent in agents for agent in self.possible_agents])

    def _listed(self, flags: Any) -> list[str]:
        return [agent for agent, holds in zip(self.possible_agents, flags, strict=True) if holds]


class Late(Team):
    """The same, but the second and third agent appear later: after some steps, or as soon as nobody else is left."""

    def __init__(self, shapes: str, behaviour: str) -> None:
        super().__init__(shapes, behaviour)
        self._waiting: list[str] = []
        self._time = 0

    def reset(self, seed: int | None = None, options: Any = None) -> Any:  # noqa: ARG002
        observations = self._reset_envs(seed)
        self._time = 0
        first, *self._waiting = self.possible_agents
        self.agents = [first]
        return {first: observations[first]}, {first: {}}

    def step(self, actions: Any) -> Any:
        observations, rewards, terminations, truncations, infos = super().step(actions)
        self._time += 1
        if self._waiting and (self._time % EVERY == 0 or not self.agents):
            newcomer = self._waiting.pop(0)
            observations[newcomer], infos[newcomer] = self._envs[newcomer].reset()
            self.agents.append(newcomer)
        return observations, rewards, terminations, truncations, infos

    def snapshot(self) -> dict[str, Any]:
        return super().snapshot() | {"waiting": self._flags(self._waiting), "time": self._time}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._waiting, self._time = self._listed(state["waiting"]), state["time"]


class Turns(Team):
    """The agents act one after the other; the episode of each ends by itself. PettingZoo's AEC API."""

    def __init__(self, shapes: str, behaviour: str) -> None:
        super().__init__(shapes, behaviour)
        self.agent_selection = self.possible_agents[0]
        self._set_rows({})

    def reset(self, seed: int | None = None, options: Any = None) -> None:  # noqa: ARG002
        self.agents = list(self.possible_agents)
        self.agent_selection = self.agents[0]
        self._set_rows(self._reset_envs(seed))

    def _set_rows(self, observations: dict[str, Any]) -> None:
        """Start with these observations, and nothing earned yet."""
        names = self.possible_agents
        self._observations = observations
        self.rewards = dict.fromkeys(names, 0.0)
        self.terminations, self.truncations = dict.fromkeys(names, False), dict.fromkeys(names, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in names}

    def step(self, action: Any) -> None:
        """Take the action of the selected agent; with None, remove it: its episode has ended."""
        agent, order = self.agent_selection, self.agents
        later = order[order.index(agent) + 1 :] + order[: order.index(agent)]
        if self.terminations[agent] or self.truncations[agent]:
            self.agents = [each for each in order if each != agent]
        else:
            row = self._envs[agent].step(action)
            self._observations[agent], self.rewards[agent], self.terminations[agent], self.truncations[agent] = row[:4]
            self.infos[agent] = row[4]
        self.agent_selection = later[0] if later else agent

    def observe(self, agent: str) -> Any:
        return self._observations[agent]

    def last(self, observe: bool = True) -> Any:  # noqa: ARG002
        agent = self.agent_selection
        return (
            *(self._observations[agent], self.rewards[agent], self.terminations[agent], self.truncations[agent]),
            self.infos[agent],
        )

    def snapshot(self) -> dict[str, Any]:
        return super().snapshot() | {
            "turn": self.possible_agents.index(self.agent_selection),
            "observations": dict(self._observations),
            "rewards": np.array([self.rewards[agent] for agent in self.possible_agents]),
            "terminated": self._flags([agent for agent, ended in self.terminations.items() if ended]),
            "truncated": self._flags([agent for agent, ended in self.truncations.items() if ended]),
            "won": np.array([self.infos[agent].get("won", np.nan) for agent in self.possible_agents]),
        }

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        names = self.possible_agents
        self.agent_selection = names[state["turn"]]
        self._set_rows(dict(state["observations"]))
        self.rewards = dict(zip(names, state["rewards"].tolist(), strict=True))
        self.terminations = dict(zip(names, state["terminated"].tolist(), strict=True))
        self.truncations = dict(zip(names, state["truncated"].tolist(), strict=True))
        won = zip(names, state["won"].tolist(), strict=True)
        self.infos = {agent: {} if np.isnan(value) else {"won": value} for agent, value in won}
