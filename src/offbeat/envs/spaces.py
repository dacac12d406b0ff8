"""From Gymnasium spaces to the library's specs, and from recorded actions to what a space accepts."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from offbeat.errors import ConfigError
from offbeat.types import ActionSpec, Array, Leaf

ActionEncoder = Callable[[Array], Array]
"""Recorded actions [n, *shape] -> a fresh array that the space accepts."""


def observation_leaves(space: gym.Space[Any], env_id: str) -> tuple[Leaf, ...]:
    """Return the leaves of an observation: one for a Box, one a key (in the space's order) for a flat Dict.

    Raises:
        ConfigError: the space is of another kind.
    """
    if isinstance(space, spaces.Box):
        return (_leaf("observation", space),)
    parts = dict(space.items()) if isinstance(space, spaces.Dict) else {}
    boxes = {key: part for key, part in parts.items() if isinstance(part, spaces.Box)}
    if parts and len(boxes) == len(parts):
        return tuple(_leaf(f"observation/{key}", part) for key, part in boxes.items())
    raise ConfigError(
        f"{env_id} has observations of {space}, but only a Box or a flat Dict of Boxes can be learned from: "
        "wrap the env in gymnasium.wrappers.FlattenObservation where it is registered"
    )


def dict_keys(space: gym.Space[Any]) -> tuple[str, ...] | None:
    """Return the keys of a Dict observation, in the order of its leaves; None for a Box."""
    return tuple(space.keys()) if isinstance(space, spaces.Dict) else None


def declared_dtypes(space: gym.Space[Any]) -> tuple[np.dtype[Any], ...]:
    """Return the dtype that the env itself declares for each leaf (a leaf may be kept in another one)."""
    parts = space.values() if isinstance(space, spaces.Dict) else (space,)
    return tuple(np.dtype(part.dtype) for part in parts)


def action_spec(space: gym.Space[Any], env_id: str) -> ActionSpec:
    """Return what the env accepts as an action; discrete choices are counted from 0, whatever their start.

    Raises:
        ConfigError: the space is neither Discrete, MultiDiscrete (of one axis) nor a Box of floats.
    """
    if isinstance(space, spaces.Discrete):
        return ActionSpec("discrete", (), nvec=(int(space.n),), start=_start([space.start]))
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        choices = tuple(int(n) for n in space.nvec)
        return ActionSpec("multidiscrete", (len(choices),), nvec=choices, start=_start(space.start))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        low, high = (tuple(float(bound) for bound in bounds.flat) for bounds in (space.low, space.high))
        return ActionSpec("box", space.shape, low=low, high=high)
    raise ConfigError(
        f"{env_id} has actions of {space}, but only Discrete, MultiDiscrete (of one axis) and Box (of "
        "floats) can be acted in: wrap the env in gymnasium.wrappers.TransformAction where it is registered"
    )


def action_encoder(space: gym.Space[Any]) -> ActionEncoder:
    """Return the function that turns recorded actions into the space's own dtype and first choice."""
    dtype, start = space.dtype, getattr(space, "start", None)
    if start is None or not np.any(start):
        return lambda actions: np.array(actions, dtype)
    return lambda actions: np.add(actions, start, dtype=dtype)


def random_actions(spec: ActionSpec, columns: int, random: np.random.Generator) -> Array:
    """Return uniform actions [columns, *shape]; a Box without a bound: within 1 of its other one, or of 0."""
    if spec.kind != "box":
        choices: Array = random.integers(0, spec.nvec, (columns, len(spec.nvec)), dtype=spec.dtype)
        return choices.reshape(columns, *spec.shape)
    low, high = _finite_bounds(spec)
    return random.uniform(low, high, (columns, low.size)).astype(spec.dtype).reshape(columns, *spec.shape)


def _start(first: Any) -> tuple[int, ...]:
    return tuple(int(number) for number in first) if np.any(first) else ()


def _leaf(name: str, space: spaces.Box) -> Leaf:
    floating = np.issubdtype(space.dtype, np.floating)
    return Leaf(name, space.shape, "float32" if floating else np.dtype(space.dtype).name)


def _finite_bounds(spec: ActionSpec) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    low, high = np.array(spec.low), np.array(spec.high)
    below = np.where(high == inf, -1.0, high - 1.0)
    above = np.where(low == -inf, 1.0, low + 1.0)
    return np.where(low == -inf, below, low), np.where(high == inf, above, high)
