"""Gymnasium spaces: the spaces inside Dicts and Tuples, their choices, and the `ActionSpec` of an action space."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from offbeat.config.env import adapter_prefix
from offbeat.core.errors import ConfigError
from offbeat.core.types import OBSERVED_MASK, ActionSpec, Array, numbers_of_parts

# --- parts of a space ---------------------------------------------------------------------------------------


UNREAD = gym.Space[Any]()
"""The space of parts of an observation that policies do not get, whatever they are."""


def children(space: gym.Space[Any]) -> list[tuple[Any, gym.Space[Any]]] | None:
    """Return the keys (of a Tuple: indices) and spaces of a Dict or Tuple, without `UNREAD` parts; None for any other
    space.
    """
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return None
    parts: Iterable[tuple[Any, gym.Space[Any]]] = space.items() if isinstance(space, spaces.Dict) else enumerate(space)
    return [(key, part) for key, part in parts if part is not UNREAD]


def named_spaces(space: gym.Space[Any], name: str = "observation") -> Iterator[tuple[str, gym.Space[Any]]]:
    """Yield the names of leaves, and the spaces inside nested Dicts and Tuples, in the order of the space.

    A mask is not divided.
    """
    parts = None if name == OBSERVED_MASK else children(space)
    if parts is None:
        yield name, space
        return
    for key, part in parts:
        yield from named_spaces(part, f"{name}/{key}")


def choices_of(space: gym.Space[Any]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the number of choices of each component, and the first choices, () if all are 0; None for a Box."""
    if isinstance(space, spaces.Discrete):
        return (int(space.n),), _start([space.start])
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(int(n) for n in space.nvec.flat), _start(space.start.flat)
    if isinstance(space, spaces.MultiBinary):
        return (2,) * int(np.prod(space.shape)), ()
    return None


def shown(space: gym.Space[Any]) -> str:
    """Return what messages say of a space that is not supported: of text and the like only its kind."""
    parts = children(space)
    known = parts is not None or choices_of(space) is not None or isinstance(space, spaces.Box)
    return str(space) if known else type(space).__name__


# --- actions ------------------------------------------------------------------------------------------------


WRAP_WORLD = "pass my_module:my_function, a function that makes the env in a wrapper of yours with such spaces"
"""What to do if the spaces of an env with several agents are not supported. Gymnasium's wrappers are for one agent."""


def action_spec(space: gym.Space[Any], env_id: str, *, in_world: bool = False) -> ActionSpec:
    """Return the spec of an action space. Recorded choices count from 0, whatever the space's start.

    Args:
        space: the action space.
        env_id: id of the env, for messages.
        in_world: whether the space is that of one agent of an env with several.

    Raises:
        ConfigError: the space is not a Discrete, MultiDiscrete, MultiBinary, Box of floats, or a Dict or Tuple of
            these, or it is empty.
    """
    if 0 in (space.shape or ()):
        raise ConfigError(f"{env_id} has actions of {shown(space)}, which is empty: leave it out of the action space")
    parts, found = children(space), choices_of(space)
    if parts:
        return _mixed(space, [action_spec(part, env_id, in_world=in_world) for _, part in parts])
    if found is not None:
        choices, start = found
        kind: Literal["discrete", "multidiscrete"] = (
            "discrete" if isinstance(space, spaces.Discrete) else "multidiscrete"
        )
        return ActionSpec(kind, space.shape or (), choices, start, env_dtype=_env_dtype("int64", space))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        low, high = bounds_of(space.low), bounds_of(space.high)
        return ActionSpec("box", space.shape, low=low, high=high, env_dtype=_env_dtype("float32", space))
    wrapper = "" if adapter_prefix(env_id) else ": wrap it in gymnasium.wrappers.TransformAction where it is registered"
    remedy = f": {WRAP_WORLD}" if in_world else wrapper
    raise ConfigError(
        f"{env_id} has actions of {shown(space)}, but only Discrete, MultiDiscrete, MultiBinary and Box (of floats), "
        f"and Dicts and Tuples of these, are supported{remedy}"
    )


def bounds_of(bounds: Array) -> tuple[float, ...]:
    """Return bounds of a Box, flattened. The largest number of float32, and what is larger, is no bound for actions,
    which are float32: many envs have it in place of infinity.
    """
    too_large = np.abs(bounds) >= np.finfo(np.float32).max
    return tuple(np.where(too_large, np.copysign(np.inf, bounds), bounds).ravel().tolist())


def _mixed(space: gym.Space[Any], parts: list[ActionSpec]) -> ActionSpec:
    nvec, low, high = (numbers_of_parts(parts, name) for name in ("nvec", "low", "high"))
    keys = tuple(space.keys()) if isinstance(space, spaces.Dict) else ()
    return ActionSpec("mixed", (len(nvec) + len(low),), nvec, low=low, high=high, parts=tuple(parts), keys=keys)


def _env_dtype(recorded: str, space: gym.Space[Any]) -> str:
    """Return the space's dtype; '' if it is the recorded one."""
    name = np.dtype(space.dtype).name
    return "" if name == recorded else name


def _start(first: Iterable[Any]) -> tuple[int, ...]:
    numbers = tuple(int(number) for number in first)
    return numbers if any(numbers) else ()
