"""From Gymnasium spaces to the library's specs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import inf
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from offbeat.core.choices import draw_choices
from offbeat.core.errors import ConfigError
from offbeat.core.types import INFO_MASK, OBSERVED_MASK, ActionSpec, Array, EnvSpec, Leaf

# --- observations -------------------------------------------------------------------------------------------


def observation_leaves(
    space: gym.Space[Any], env_id: str, action: ActionSpec, *, info_mask: bool = False
) -> tuple[Leaf, ...]:
    """Return the leaves of an observation: one, or those of a tree of Dicts and Tuples in the spaces' order.

    Args:
        space: of the observation.
        env_id: for messages.
        action: whose choices a Dict's key 'action_mask' says to be allowed or not.
        info_mask: whether the env's infos say so: there is a leaf of it then, the last.

    Raises:
        ConfigError: a space is of another kind, or a mask does not have a flag for each choice.
    """
    leaves = tuple(_leaves("observation", space, env_id, action))
    if info_mask:
        leaves = (*leaves, _mask(INFO_MASK, action))
    names = [leaf.name for leaf in leaves]
    if len(set(names)) < len(names):
        raise ConfigError(f"{env_id} has two observations of one name among {', '.join(names)}: rename a key")
    if not any(leaf.inputs for leaf in leaves):
        raise ConfigError(f"{env_id} has observations of {space}, in which there is nothing to be learned from")
    return leaves


def stacked(spec: EnvSpec, stack: int) -> EnvSpec:
    """Return what an env looks like to a policy that sees so many successive images at once.

    Raises:
        ConfigError: the env has no images.
    """
    if stack == 1:
        return spec
    if not any(leaf.is_image for leaf in spec.observation):
        raise ConfigError(
            f"frame_stack is {stack}, but {spec.id} has no images, whose frames could be stacked: leave it out, or "
            "wrap the env in gymnasium.wrappers.FrameStackObservation where it is registered"
        )
    leaves = tuple(replace(leaf, stack=stack) if leaf.is_image else leaf for leaf in spec.observation)
    return replace(spec, observation=leaves)


def children(space: gym.Space[Any]) -> list[tuple[Any, gym.Space[Any]]] | None:
    """Return the keys (of a Tuple: places) and spaces that a Dict or Tuple consists of; None for any other space."""
    if isinstance(space, spaces.Dict):
        return list(space.items())
    return list(enumerate(space)) if isinstance(space, spaces.Tuple) else None


def single_spaces(space: gym.Space[Any]) -> Iterator[gym.Space[Any]]:
    """Yield the spaces that are no Dict or Tuple, in the order of the leaves."""
    parts = children(space)
    if parts is None:
        yield space
        return
    for _, part in parts:
        yield from single_spaces(part)


def choices_of(space: gym.Space[Any]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return how many choices each number of a space has, and the first ones where not all are 0; None for a Box."""
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
        yield Leaf(name, space.shape or (), _smallest(max(choices)), choices, start)
    elif isinstance(space, spaces.Box):
        floating = np.issubdtype(space.dtype, np.floating)
        yield Leaf(name, space.shape, "float32" if floating else np.dtype(space.dtype).name)
    else:
        raise ConfigError(
            f"{env_id} has observations of {space} ({name}), but only Box, Discrete, MultiDiscrete and MultiBinary, "
            "and Dicts and Tuples of these, can be learned from: wrap the env in "
            "gymnasium.wrappers.TransformObservation where it is registered"
        )


def _smallest(choices: int) -> str:
    """Return the smallest dtype for numbers below `choices` that torch knows well."""
    return next(name for name in ("uint8", "int16", "int32", "int64") if choices <= np.iinfo(name).max + 1)


def _mask(name: str, action: ActionSpec) -> Leaf:
    return Leaf(name, (sum(action.nvec),), "bool")


def _require_mask(space: gym.Space[Any], env_id: str, action: ActionSpec) -> None:
    """Refuse what cannot be read as a mask.

    Raises:
        ConfigError: with what is expected.
    """
    size = sum(action.nvec)
    if not action.nvec:
        raise ConfigError(
            f"{env_id} has an action_mask in its observations, but box actions, of which nothing can be masked: "
            "give that key another name"
        )
    if not isinstance(space, spaces.Box | spaces.MultiBinary) or space.shape != (size,):
        raise ConfigError(
            f"{env_id} has an action_mask of {space}, but a flag for each of the {size} choices {list(action.nvec)} is "
            f"expected, side by side: declare it as gymnasium.spaces.MultiBinary({size})"
        )


# --- actions ------------------------------------------------------------------------------------------------


def action_spec(space: gym.Space[Any], env_id: str) -> ActionSpec:
    """Return what the env accepts as an action; choices are counted from 0, whatever their start.

    Raises:
        ConfigError: the space is none of Discrete, MultiDiscrete, MultiBinary, Box of floats, or a Dict or Tuple of
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
        return ActionSpec(kind, space.shape or (), choices, start, env_dtype=_other_than("int64", space))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        low, high = (tuple(float(bound) for bound in bounds.flat) for bounds in (space.low, space.high))
        return ActionSpec("box", space.shape, low=low, high=high, env_dtype=_other_than("float32", space))
    raise ConfigError(
        f"{env_id} has actions of {space}, but only Discrete, MultiDiscrete, MultiBinary and Box (of floats), and "
        "Dicts and Tuples of these, can be acted in: wrap the env in gymnasium.wrappers.TransformAction where it is "
        "registered"
    )


def _mixed(space: gym.Space[Any], parts: list[ActionSpec]) -> ActionSpec:
    nvec, low, high = (tuple(joined) for joined in (_of(parts, "nvec"), _of(parts, "low"), _of(parts, "high")))
    keys = tuple(space.keys()) if isinstance(space, spaces.Dict) else ()
    return ActionSpec("mixed", (len(nvec) + len(low),), nvec, low=low, high=high, parts=tuple(parts), keys=keys)


def _of(parts: list[ActionSpec], name: str) -> Iterator[Any]:
    return (number for part in parts for number in getattr(part, name))


def _other_than(recorded: str, space: gym.Space[Any]) -> str:
    """Return the space's dtype, or '' where it is the one that is recorded."""
    name = np.dtype(space.dtype).name
    return "" if name == recorded else name


def _start(first: Iterable[Any]) -> tuple[int, ...]:
    numbers = tuple(int(number) for number in first)
    return numbers if any(numbers) else ()


# --- random actions -----------------------------------------------------------------------------------------


def random_actions(
    spec: ActionSpec, columns: int, random: np.random.Generator, mask: NDArray[np.bool_] | None = None
) -> Array:
    """Return uniform actions as recorded, [columns, *shape]; a Box without a bound: within 1 of its other one, or of 0.

    Args:
        spec: of the actions.
        columns: how many.
        random: draws them.
        mask: [columns, sum(nvec)], which choices are allowed; None: all are.
    """
    if spec.kind == "box":
        return _random_numbers(spec, columns, random).reshape(columns, *spec.shape)
    choices = draw_choices(spec.nvec, columns, random, mask)
    if spec.kind == "mixed":
        return np.concatenate([choices, _random_numbers(spec, columns, random)], axis=1, dtype=np.float32)
    return choices.reshape(columns, *spec.shape)


def _random_numbers(spec: ActionSpec, columns: int, random: np.random.Generator) -> Array:
    low, high = _finite_bounds(spec)
    return random.uniform(low, high, (columns, low.size)).astype(np.float32)


def _finite_bounds(spec: ActionSpec) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    low, high = np.array(spec.low), np.array(spec.high)
    below = np.where(high == inf, -1.0, high - 1.0)
    above = np.where(low == -inf, 1.0, low + 1.0)
    return np.where(low == -inf, below, low), np.where(high == inf, above, high)
