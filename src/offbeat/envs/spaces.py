"""Converts Gymnasium spaces to specs: leaves of an observation, and an `ActionSpec`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from offbeat.core.choices import smallest_dtype
from offbeat.core.errors import ConfigError
from offbeat.core.types import INFO_MASK, OBSERVED_MASK, ActionSpec, EnvSpec, Leaf

# --- observations -------------------------------------------------------------------------------------------


def observation_leaves(
    space: gym.Space[Any], env_id: str, action: ActionSpec, *, info_mask: bool = False
) -> tuple[Leaf, ...]:
    """Return the leaves of an observation: one, or those of nested Dicts and Tuples in the order of the space.

    Args:
        space: Observation space of one env.
        env_id: Id of the env, for messages.
        action: Spec of the actions, to check the shape of a mask (the key 'action_mask' of a Dict).
        info_mask: Whether the env's infos have an action mask. It becomes the last leaf.

    Raises:
        ConfigError: a space is not supported, or a mask does not have one flag per choice.
    """
    leaves = tuple(_leaves("observation", space, env_id, action))
    if info_mask:
        leaves = (*leaves, _mask(INFO_MASK, action))
    names = [leaf.name for leaf in leaves]
    if len(set(names)) < len(names):
        raise ConfigError(f"{env_id} has two observations with the same name among {', '.join(names)}: rename a key")
    if not any(leaf.inputs for leaf in leaves):
        raise ConfigError(f"{env_id} has observations of {space}, which contain no inputs for a network")
    return leaves


def stacked(spec: EnvSpec, stack: int) -> EnvSpec:
    """Return the spec of an env for a policy that gets `stack` successive frames of each image.

    Raises:
        ConfigError: the env has no images.
    """
    if stack == 1:
        return spec
    if not any(leaf.is_image for leaf in spec.observation):
        raise ConfigError(
            f"frame_stack is {stack}, which is not supported by {spec.id} because it has no images: omit it, or "
            "wrap the env in gymnasium.wrappers.FrameStackObservation where it is registered"
        )
    leaves = tuple(replace(leaf, stack=stack) if leaf.is_image else leaf for leaf in spec.observation)
    return replace(spec, observation=leaves)


def children(space: gym.Space[Any]) -> list[tuple[Any, gym.Space[Any]]] | None:
    """Return the keys (of a Tuple: indices) and spaces of a Dict or Tuple; None for any other space."""
    if isinstance(space, spaces.Dict):
        return list(space.items())
    return list(enumerate(space)) if isinstance(space, spaces.Tuple) else None


def single_spaces(space: gym.Space[Any]) -> Iterator[gym.Space[Any]]:
    """Yield the spaces inside nested Dicts and Tuples, in the order of the leaves."""
    parts = children(space)
    if parts is None:
        yield space
        return
    for _, part in parts:
        yield from single_spaces(part)


def choices_of(space: gym.Space[Any]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the number of choices of each component, and the first choices, () if all are 0; None for a Box."""
    if isinstance(space, spaces.Discrete):
        return (int(space.n),), _start([space.start])
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(int(n) for n in space.nvec.flat), _start(space.start.flat)
    if isinstance(space, spaces.MultiBinary):
        return (2,) * int(np.prod(space.shape)), ()
    return None


def _leaves(name: str, space: gym.Space[Any], env_id: str, action: ActionSpec) -> Iterator[Leaf]:
    if name == OBSERVED_MASK:
        _require_mask(space, env_id, action)
        yield _mask(name, action)
        return
    parts, found = children(space), choices_of(space)
    if parts is not None:
        for key, part in parts:
            yield from _leaves(f"{name}/{key}", part, env_id, action)
    elif found is not None:
        choices, start = found
        yield Leaf(name, space.shape or (), smallest_dtype(choices), choices, start)
    elif isinstance(space, spaces.Box):
        floating = np.issubdtype(space.dtype, np.floating)
        yield Leaf(name, space.shape, "float32" if floating else np.dtype(space.dtype).name)
    else:
        raise ConfigError(
            f"{env_id} has observations of {space} ({name}), but only Box, Discrete, MultiDiscrete and MultiBinary, "
            "and Dicts and Tuples of these, are supported: wrap the env in "
            "gymnasium.wrappers.TransformObservation where it is registered"
        )


def _mask(name: str, action: ActionSpec) -> Leaf:
    return Leaf(name, (sum(action.nvec),), "bool")


def _require_mask(space: gym.Space[Any], env_id: str, action: ActionSpec) -> None:
    """Raise ConfigError if a space is not that of a mask with one flag per choice."""
    size = sum(action.nvec)
    if not action.nvec:
        raise ConfigError(
            f"{env_id} has an action_mask in its observations, but box actions cannot be masked: rename the key"
        )
    if not isinstance(space, spaces.Box | spaces.MultiBinary) or space.shape != (size,):
        raise ConfigError(
            f"{env_id} has an action_mask of {space}, but one flag for each of the {size} choices {list(action.nvec)}, "
            f"concatenated, is expected: declare it as gymnasium.spaces.MultiBinary({size})"
        )


# --- actions ------------------------------------------------------------------------------------------------


def action_spec(space: gym.Space[Any], env_id: str) -> ActionSpec:
    """Return the spec of an action space. Recorded choices count from 0, whatever the space's start.

    Raises:
        ConfigError: the space is not a Discrete, MultiDiscrete, MultiBinary, Box of floats, or a Dict or Tuple of
            these.
    """
    parts, found = children(space), choices_of(space)
    if parts:
        return _mixed(space, [action_spec(part, env_id) for _, part in parts])
    if found is not None:
        choices, start = found
        kind: Literal["discrete", "multidiscrete"] = (
            "discrete" if isinstance(space, spaces.Discrete) else "multidiscrete"
        )
        return ActionSpec(kind, space.shape or (), choices, start, env_dtype=_env_dtype("int64", space))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        low, high = (tuple(float(bound) for bound in bounds.flat) for bounds in (space.low, space.high))
        return ActionSpec("box", space.shape, low=low, high=high, env_dtype=_env_dtype("float32", space))
    raise ConfigError(
        f"{env_id} has actions of {space}, but only Discrete, MultiDiscrete, MultiBinary and Box (of floats), and "
        "Dicts and Tuples of these, are supported: wrap the env in gymnasium.wrappers.TransformAction where it is "
        "registered"
    )


def _mixed(space: gym.Space[Any], parts: list[ActionSpec]) -> ActionSpec:
    nvec, low, high = (_concatenated(parts, name) for name in ("nvec", "low", "high"))
    keys = tuple(space.keys()) if isinstance(space, spaces.Dict) else ()
    return ActionSpec("mixed", (len(nvec) + len(low),), nvec, low=low, high=high, parts=tuple(parts), keys=keys)


def _concatenated(parts: list[ActionSpec], name: str) -> tuple[Any, ...]:
    return tuple(number for part in parts for number in getattr(part, name))


def _env_dtype(recorded: str, space: gym.Space[Any]) -> str:
    """Return the space's dtype; '' if it is the recorded one."""
    name = np.dtype(space.dtype).name
    return "" if name == recorded else name


def _start(first: Iterable[Any]) -> tuple[int, ...]:
    numbers = tuple(int(number) for number in first)
    return numbers if any(numbers) else ()
