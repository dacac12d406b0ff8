"""A pool of EnvPool with one column, as a single env of Gymnasium: to check it, and to render it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from offbeat.envs.contract import EPISODE_START


class PoolOfOne(gym.Env[Any, Any]):
    """Makes a new pool for each seed, because a pool takes its seed when it is made."""

    def __init__(self, make: Callable[[int], Any], repeats: int, has_lives: bool) -> None:
        """Make the env.

        Args:
            make: Makes the pool with a seed.
            repeats: Steps of the pool per env step.
            has_lives: Whether the pool ends an episode where a life is lost; here, the game goes on.
        """
        self._make, self._repeats, self._has_lives = make, repeats, has_lives
        self.metadata = {"render_fps": 30}
        self._pool = make(0)
        self.observation_space, self.action_space = self._pool.observation_space, self._pool.action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:  # noqa: ARG002
        if seed is not None:
            self._pool.close()
            self._pool = self._make(seed)
        observation, info = self._pool.reset()
        return _first(observation), _first(info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take an env step, and after a lost life the reset row too. `info[EPISODE_START]` is then True."""
        actions, total = _batch(action), 0.0
        for _ in range(self._repeats):
            observation, reward, terminated, truncated, info = _first(self._pool.step(actions))
            total += float(reward)
            if terminated or truncated:
                break
        starts = self._has_lives and bool(terminated) and not truncated and not info["terminated"]
        if starts:
            observation, reward, _, truncated, info = _first(self._pool.step(actions))
            total, terminated = total + float(reward), info["terminated"]
        return observation, total, bool(terminated), bool(truncated), {**info, EPISODE_START: starts}

    def render(self) -> Any:
        frames = self._pool.render()
        return None if frames is None else frames[0]

    def close(self) -> None:
        self._pool.close()


def _first(tree: Any) -> Any:
    """Return the first of each array, [1, ...], in nested dicts and tuples."""
    if isinstance(tree, Mapping):
        return {key: _first(part) for key, part in tree.items()}
    return tuple(map(_first, tree)) if isinstance(tree, tuple) else tree[0]


def _batch(action: Any) -> Any:
    """Return the actions of one column, [1, ...]."""
    if isinstance(action, Mapping):
        return {key: _batch(part) for key, part in action.items()}
    return tuple(map(_batch, action)) if isinstance(action, tuple) else np.asarray(action)[None]
