"""Limits of episodes: the env's own, that of the run, and where an evaluation cuts an episode.

Each adapter asks its envs for the shortest of them, unless the envs have it already.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
from gymnasium.wrappers import TimeLimit

from offbeat.core.types import EnvSpec


@dataclass(frozen=True)
class Limits:
    """What is asked for beside an env's own limit, in env steps."""

    run: int | None = None
    """`max_episode_steps` of [env]: the task has it, so whatever plays it must truncate there."""
    evaluation: int | None = None
    """Where an evaluation cuts an episode. An env that cannot be limited does without it."""

    def shorter_than(self, own: int | None) -> int | None:
        """Return the limit to ask for in an env whose own is `own`; None where that is short enough."""
        wanted = shortest(self.run, self.evaluation)
        return wanted if wanted is not None and (own is None or wanted < own) else None

    def recorded(self, spec: EnvSpec, own: int | None) -> EnvSpec:
        """Return the spec of envs whose own limit is `own`, and which were given the shorter one, if there is one."""
        limit = shortest(self.run, own)
        cuts = self.evaluation is not None and (limit is None or self.evaluation < limit)
        return replace(spec, time_limit=limit, cut_at=self.evaluation if cuts else None)


NO_LIMITS = Limits()


def shortest(*limits: int | None) -> int | None:
    """Return the shortest limit; None where there is none."""
    return min((limit for limit in limits if limit is not None), default=None)


def limited(env: gym.Env[Any, Any], limits: Limits) -> gym.Env[Any, Any]:
    """Return a single env that truncates its episodes as `limits` say."""
    wanted = limits.shorter_than(time_limit_of(env))
    return env if wanted is None else TimeLimit(env, wanted)


def time_limit_of(env: Any) -> int | None:
    """Return the shortest limit of Gymnasium's TimeLimit wrappers around a single env; None where there is none.

    What an env counts by itself is not known here.
    """
    found = []
    while isinstance(env, gym.Wrapper):
        if isinstance(env, TimeLimit):
            found.append(env._max_episode_steps)  # noqa: SLF001 - there is no other way to read it
        env = env.env
    return shortest(*found)
