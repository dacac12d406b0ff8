"""The part of `offbeat check` for values that are allowed but make learning hard: their sizes, and how episodes end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from offbeat.config.env import EnvConfig
from offbeat.envs.findings import Finding
from offbeat.envs.spaces import bounds_of, children

LARGEST_OBSERVATION = 1e3
LARGEST_INTEGER = 2**24
"""Policies read float32, which has all integers up to this one."""
LARGEST_REWARD = 1e3
LARGEST_ACTION = 10.0
SHORTEST_LIMIT = 20
"""Env steps. Shorter episodes of equal length are usually those of the task."""
LONG_EPISODE = 100
"""Env steps. Of episodes as long as this, two of equal length are enough to suspect a hidden time limit; else three."""


class Values:
    """Collects what an env returns, and reports what is hard to learn from."""

    def __init__(self, space: gym.Space[Any], action_space: gym.Space[Any], settings: EnvConfig) -> None:
        """Collect observations in `space`, as `read_space` returns it, and rewards as they are learned from."""
        self._space, self._actions, self._settings = space, action_space, settings
        self._observation = self._reward = 0.0
        self._integer = max((_largest_bound(part) for part in _single(space) if _has_large_integers(part)), default=0.0)
        """The largest integer of an observation so far, or among its bounds."""
        self._length = 0
        self._lengths: list[int] = []
        """Lengths of the terminated episodes."""
        self._truncated = False

    def add(self, parts: Mapping[str, Any]) -> None:
        """Add what `reset` or `step` returned, which has no faults."""
        for space, value in _boxes(self._space, parts["observation"]):
            if np.issubdtype(space.dtype, np.floating):
                self._observation = max(self._observation, _largest(value))
            elif _has_large_integers(space):
                self._integer = max(self._integer, _largest(value))
        if "reward" not in parts:
            self._length = 0
            return
        self._reward = max(self._reward, abs(float(self._settings.learning_rewards(np.float64(parts["reward"])))))
        self._length += 1
        self._truncated |= bool(parts["truncated"])
        if parts["terminated"]:
            self._lengths.append(self._length)

    def findings(self) -> Iterator[Finding]:
        """Yield the warnings about all values that were added."""
        yield from self._of_actions()
        if self._reward > LARGEST_REWARD:
            remedy = "scale them in the env to about 1, or pass --set reward_scale=...; PPO normalises them by default"
            yield Finding("warning", f"rewards are as large as {self._reward:.2g}", remedy)
        if self._observation > LARGEST_OBSERVATION:
            remedy = "scale them in the env to about 1, or pass --set normalize_observations=true, PPO's default"
            yield Finding("warning", f"observations are as large as {self._observation:.2g}", remedy)
        if self._integer > LARGEST_INTEGER:
            problem = (
                f"observations are integers as large as {self._integer:.2g}, but policies read float32, in which "
                f"neighbours above {LARGEST_INTEGER} are the same number"
            )
            remedy = "scale them in the env, count from a nearer start, or return the parts that matter one by one"
            yield Finding("warning", problem, remedy)
        if self._have_equal_lengths() and not self._truncated:
            problem = (
                f"all {len(self._lengths)} episodes are terminated after {self._lengths[0]} steps, none is truncated"
            )
            remedy = (
                "if this is a time limit, return terminated=False and truncated=True there, so that the value of the "
                "last state is not learned as 0"
            )
            yield Finding("warning", problem, remedy)

    def _have_equal_lengths(self) -> bool:
        """Whether all episodes ended after the same number of steps, so that a time limit is likely."""
        length = max(self._lengths, default=0)
        enough = 2 if length >= LONG_EPISODE else 3
        return length >= SHORTEST_LIMIT and len(self._lengths) >= enough and set(self._lengths) == {length}

    def _of_actions(self) -> Iterator[Finding]:
        for space in _single(self._actions):
            if not isinstance(space, gym.spaces.Box):
                continue
            low, high = min(bounds_of(space.low)), max(bounds_of(space.high))
            if not np.isfinite([low, high]).all():
                remedy = (
                    "declare finite bounds in the action_space, such as -1 and 1, and scale the actions in the env: "
                    "SAC, CrossQ and TD3 need them, and PPO starts with actions of about -1 to 1"
                )
                yield Finding("warning", f"actions are not bounded: from {low:g} to {high:g}", remedy)
            elif max(-low, high) > LARGEST_ACTION:
                problem = f"actions are bounded by {low:g} and {high:g}, far outside of [-1, 1]"
                remedy = (
                    "offbeat scales them; other libraries may not: gymnasium.wrappers.RescaleAction does, to [-1, 1]"
                )
                yield Finding("warning", problem, remedy)


def _boxes(space: gym.Space[Any], observation: Any) -> Iterator[tuple[gym.spaces.Box, Any]]:
    """Yield the parts of an observation that are of a Box, with the Box."""
    parts = children(space)
    if parts is not None:
        for key, part in parts:
            yield from _boxes(part, observation[key])
    elif isinstance(space, gym.spaces.Box):
        yield space, observation


def _largest(values: Any) -> float:
    return float(np.abs(np.asarray(values, np.float64)).max(initial=0.0))


def _has_large_integers(space: gym.Space[Any]) -> bool:
    """Whether a space is a Box of integers of a dtype that has more of them than float32."""
    is_integer = isinstance(space, gym.spaces.Box) and np.issubdtype(space.dtype, np.integer)
    return is_integer and np.iinfo(space.dtype).max > LARGEST_INTEGER


def _largest_bound(space: Any) -> float:
    """Return the largest bound of a Box of integers, without those of its dtype, which stand for no bound."""
    limits = np.iinfo(space.dtype)
    bounds = np.concatenate([space.low.ravel(), space.high.ravel()])
    return _largest(bounds[(bounds != limits.min) & (bounds != limits.max)])


def _single(space: gym.Space[Any]) -> Iterator[gym.Space[Any]]:
    """Yield the spaces inside nested Dicts and Tuples."""
    parts = children(space)
    if parts is None:
        yield space
    for _, part in parts or ():
        yield from _single(part)
