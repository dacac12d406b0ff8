"""`FixedAgents` gives a Unity build, as ML-Agents' `UnityParallelEnv` shows it, agents whose names never change.

Unity gives an agent a new name, 'BEHAVIOUR?team=T?agent_id=N', at each start of its episode, and starts that episode by
itself. Here an agent is a place: 'BEHAVIOUR_teamT_0', 'BEHAVIOUR_teamT_1', ... An episode of the world begins with a
reset and ends when all agents have ended; what Unity starts before that waits for the next reset. Versions of ML-Agents
with the early API of PettingZoo (four values from `step`, no infos from `reset`) are supported too, and the package is
not imported here.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

import gymnasium as gym
import numpy as np

from offbeat.core.errors import ConfigError
from offbeat.core.types import INFO_MASK, NO_DECISION

_ID = "?agent_id="


class FixedAgents:
    """A parallel env (PettingZoo's API) around a `UnityParallelEnv`.

    An agent that requests no decision in a step keeps its last observation, and its info has a true 'no_decision'.
    Rewards are the agent's own plus those of its group, as ML-Agents' trainers add them. Masks are converted: in Unity
    a set flag forbids an action.
    """

    metadata: Mapping[str, Any] = {"render_modes": []}

    def __init__(self, env: Any) -> None:
        """Reset `env`, a `UnityParallelEnv`, to see its agents. Each behaviour keeps the number that it has now.

        Raises:
            ConfigError: no agent requests a decision after the reset, or a space is not supported.
        """
        self._env = env
        observations = self._reset_env(None)
        if not observations:
            env.close()
            raise ConfigError("the Unity build has no agents after its reset: check that its scene has some")
        self._spaces: dict[str, tuple[gym.Space[Any], gym.Space[Any]]] = {}
        for name in _by_age(observations):
            behaviour = name.partition(_ID)[0]
            index = sum(place.startswith(_plain(behaviour) + "_") for place in self._spaces)
            self._spaces[f"{_plain(behaviour)}_{index}"] = _spaces_of(env, name, observations[name])
        self.possible_agents = list(self._spaces)
        self.agents: list[str] = []
        self._names: dict[str, str] = {}
        """Place -> Unity's name of the agent that acts there."""
        self._seen: dict[str, Any] = {}
        self._requested: set[str] = set()
        """Places whose agents request a decision."""

    def observation_space(self, agent: str) -> gym.Space[Any]:
        return self._spaces[agent][0]

    def action_space(self, agent: str) -> gym.Space[Any]:
        return self._spaces[agent][1]

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:  # noqa: ARG002
        """Reset the build. Unity's own random numbers start from the seed of its `UnityEnvironment` instead."""
        self._names, self._seen = {}, {}
        observations = self._reset_env(seed)
        self._place(self._newest(observations))
        self._requested = set(self._names)
        self.agents = [place for place in self.possible_agents if place in self._names]
        for place in self.agents:
            self._seen[place] = self._converted(place, observations[self._names[place]])
        return dict(self._seen), {place: {NO_DECISION: False} for place in self.agents}

    def step(self, actions: Mapping[str, Any]) -> tuple[Any, ...]:
        """Step the build until an agent requests a decision or ends."""
        names = self._names
        step = _Step(self._env.step({names[place]: actions[place] for place in self.agents if place in actions}))
        acted = list(self.agents)
        self._place(name for name in _by_age(step.observations) if not step.ended(name))
        seen = acted + [place for place in self.possible_agents if place in names and place not in self._seen]
        self._requested = {place for place in seen if names[place] in step.observations}
        for place in self._requested:
            self._seen[place] = self._converted(place, step.observations[names[place]])
        terminations = {place: step.terminated(names[place]) for place in acted}
        truncations = {place: step.truncated(names[place]) for place in acted}
        self.agents = [
            place
            for place in self.possible_agents
            if place in seen and not (terminations.get(place) or truncations.get(place))
        ]
        observations = {place: self._seen[place] for place in seen}
        rewards = {place: step.reward(names[place]) for place in acted}
        infos = {place: {NO_DECISION: place not in self._requested} for place in seen}
        return observations, rewards, terminations, truncations, infos

    def close(self) -> None:
        self._env.close()

    def _reset_env(self, seed: int | None) -> dict[str, Any]:
        accepts = "seed" in inspect.signature(self._env.reset).parameters
        returned = self._env.reset(seed=seed) if accepts else self._env.reset()
        return dict(returned[0] if isinstance(returned, tuple) else returned)

    def _newest(self, names: Iterable[str]) -> list[str]:
        """Return the newest agents of each behaviour, as many as it has places.

        Agents of the last episode may still be reported, because the reset has interrupted them.
        """
        groups = groupby(_by_age(names), lambda name: name.partition(_ID)[0])
        return [name for behaviour, group in groups for name in list(group)[-len(self._places(behaviour)) :]]

    def _places(self, behaviour: str) -> list[str]:
        return [place for place in self.possible_agents if place.rpartition("_")[0] == _plain(behaviour)]

    def _place(self, names: Iterable[str]) -> None:
        """Give places that have had no agent in this episode to agents that have none."""
        taken = set(self._names.values())
        for name in names:
            free = (place for place in self._places(name.partition(_ID)[0]) if place not in self._names)
            place = None if name in taken else next(free, None)
            if place is not None:
                self._names[place] = name

    def _converted(self, place: str, given: Any) -> Any:
        """Return an observation in the structure of its space. The last one of an episode has no mask."""
        space = self.observation_space(place)
        if not isinstance(space, gym.spaces.Dict):
            return _joined(given)
        mask_space = space[INFO_MASK]
        if not _has_mask(given):
            return {"observation": _joined(given), INFO_MASK: np.ones(mask_space.shape or (), np.int8)}
        allowed = ~np.concatenate([np.asarray(part, np.bool_).reshape(-1) for part in given[INFO_MASK]])
        return {"observation": _joined(given["observation"]), INFO_MASK: allowed.astype(np.int8)}


class _Step:
    """What `UnityParallelEnv.step` returns, in either form."""

    def __init__(self, returned: tuple[Any, ...]) -> None:
        if len(returned) not in (4, 5):
            raise ValueError(f"step() of the Unity env returned {len(returned)} values, but 4 or 5 are expected")
        self.observations, self._rewards, *ends, self._infos = returned
        self._ends = ends

    def ended(self, name: str) -> bool:
        return any(bool(end.get(name)) for end in self._ends)

    def truncated(self, name: str) -> bool:
        """Whether Unity interrupted the episode: by a limit of steps or a reset."""
        if len(self._ends) == 2:
            return bool(self._ends[1].get(name))
        return self.ended(name) and bool(self._infos.get(name, {}).get("interrupted"))

    def terminated(self, name: str) -> bool:
        return self.ended(name) and not self.truncated(name)

    def reward(self, name: str) -> float:
        return float(self._rewards.get(name, 0.0)) + float(self._infos.get(name, {}).get("group_reward", 0.0))


def _by_age(names: Iterable[str]) -> list[str]:
    """Return names of agents by their behaviour, and then in the order in which Unity started their episodes."""
    return sorted(names, key=lambda name: (name.partition(_ID)[0], int(name.partition(_ID)[2] or 0)))


def _plain(behaviour: str) -> str:
    """Return a behaviour's name without the characters of a query: 'Striker?team=1' is 'Striker_team1'."""
    return behaviour.replace("?", "_").replace("=", "")


# --- spaces and observations --------------------------------------------------------------------------------


def _spaces_of(env: Any, name: str, observation: Any) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """Return an agent's spaces; an observation with a mask is a Dict, which Unity's spaces do not say."""
    seen, action = _gymnasium(env.observation_space(name), name), _gymnasium(env.action_space(name), name)
    if _has_mask(observation):
        size = sum(len(np.asarray(part).reshape(-1)) for part in observation[INFO_MASK])
        seen = gym.spaces.Dict({"observation": seen, INFO_MASK: gym.spaces.MultiBinary(size)})
    return seen, action


def _gymnasium(space: Any, name: str) -> gym.Space[Any]:
    """Return a space of Gymnasium for one of Gymnasium or of its predecessor gym. Boxes have floats."""
    kind = type(space).__name__
    if kind == "Box":
        return gym.spaces.Box(np.float32(space.low), np.float32(space.high), space.shape, np.float32)
    if kind == "Discrete":
        return gym.spaces.Discrete(int(space.n))
    if kind == "MultiDiscrete":
        return gym.spaces.MultiDiscrete(np.array(space.nvec))
    if kind == "Tuple":
        return gym.spaces.Tuple([_gymnasium(part, name) for part in space.spaces])
    raise ConfigError(f"{name} has the space {space}, but Box, Discrete, MultiDiscrete and Tuple are expected")


def _has_mask(observation: Any) -> bool:
    return isinstance(observation, Mapping) and INFO_MASK in observation


def _joined(parts: Any) -> Any:
    """Return one array, or a tuple of several; Unity gives a list of arrays, or the array itself."""
    if not isinstance(parts, list | tuple):
        return parts
    return parts[0] if len(parts) == 1 else tuple(parts)
