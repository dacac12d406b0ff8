"""What the worlds of both APIs of PettingZoo share: which API an env has, the names of its agents, and their spaces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import gymnasium as gym

from offbeat.core.errors import ConfigError
from offbeat.envs.contract import frame_skip_of
from offbeat.envs.space_generators import seed_each, separate_spaces_of_agents

Api = Literal["parallel", "AEC"]


def api_of(env: Any) -> Api | None:
    """Return which of PettingZoo's APIs an object has; None if it has neither."""
    if isinstance(env, type | gym.Env) or not _has(env, "reset", "step"):
        return None
    if _has(env, "last", "observe"):
        return "AEC"
    listed = any(hasattr(env, name) for name in ("agents", "possible_agents"))
    spaces = _has(env, "action_space") or hasattr(env, "action_spaces")
    return "parallel" if listed and spaces else None


def _has(env: Any, *methods: str) -> bool:
    return all(callable(getattr(env, method, None)) for method in methods)


class AgentsOfEnv:
    """An env with several agents, and the agents that may appear in it."""

    def __init__(self, env: Any) -> None:
        """Wrap `env`. One without `possible_agents` is reset: then the agents of this reset are all that may appear.

        Raises:
            ConfigError: the env has no agents, or their names are not strings.
        """
        self.env = env
        self.agents = _possible_agents(env)
        self.frame_skip = frame_skip_of(getattr(env, "unwrapped", env))
        self._known = frozenset(self.agents)

    def observation_space(self, agent: str) -> gym.Space[Any]:
        """Return the observation space of an agent."""
        return self._space("observation", agent)

    def action_space(self, agent: str) -> gym.Space[Any]:
        """Return the action space of an agent."""
        return self._space("action", agent)

    def spaces(self) -> list[gym.Space[Any]]:
        """Return the spaces of all agents, from which some envs sample."""
        return [space for agent in self.agents for space in (self.action_space(agent), self.observation_space(agent))]

    def seed_spaces(self, seed: int | None) -> None:
        """Seed the spaces of all agents, each with a seed of its own; None: do nothing."""
        if seed is not None:
            self.separate_spaces()
            seed_each(self.spaces(), seed)

    def separate_spaces(self) -> None:
        """Copy the spaces that another env uses too."""
        separate_spaces_of_agents(self.env, self.agents)

    def render(self) -> Any:
        """Return the env's picture of the current state."""
        return self.env.render()

    def close(self) -> None:
        """Close the env, if it has such a method: PettingZoo's envs do, simple worlds of one's own need none."""
        close = getattr(self.env, "close", None)
        if close is not None:
            close()

    def _space(self, kind: str, agent: str) -> gym.Space[Any]:
        method = getattr(self.env, f"{kind}_space", None)
        # PettingZoo's envs warn if the dict is read.
        spaces: Any = None if callable(method) else getattr(self.env, f"{kind}_spaces", None)
        if not callable(method) and spaces is None:
            raise ConfigError(f"{self.env} has no method {kind}_space(agent): add it, as in pettingzoo.ParallelEnv")
        space: gym.Space[Any] = method(agent) if callable(method) else spaces[agent]
        return space

    def _require_known(self, agents: Iterable[str]) -> None:
        """Raise ValueError if an agent appears that was never listed."""
        if not self._known.issuperset(agents):
            unlisted = next(agent for agent in agents if agent not in self._known)
            raise ValueError(
                f"the agent {unlisted!r} appeared, but only {', '.join(self.agents)} are known: list all agents that "
                "may appear in the env's possible_agents"
            )


def _possible_agents(env: Any) -> tuple[str, ...]:
    agents = getattr(env, "possible_agents", None)
    if agents is None:
        env.reset(seed=0)
        agents = env.agents
    if not agents:
        raise ConfigError(f"{env} has no agents: list all agents that may appear in its possible_agents")
    for agent in agents:
        if not isinstance(agent, str):
            raise ConfigError(f"{env} has the agent {agent!r}, but strings are expected: name it, such as 'agent_0'")
    return tuple(agents)
