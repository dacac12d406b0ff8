"""Converts observation spaces to leaves: keys may be left out, images made smaller and grey, and stacked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from offbeat.config.env import UNSET, EnvConfig
from offbeat.core.choices import smallest_dtype
from offbeat.core.errors import ConfigError
from offbeat.core.fields import SMALLEST_IMAGE
from offbeat.core.images import reduced_leaf
from offbeat.core.types import INFO_MASK, OBSERVED_MASK, ActionSpec, EnvSpec, Leaf
from offbeat.envs.spaces import UNREAD, WRAP_WORLD, choices_of, named_spaces, shown


def observation_leaves(
    space: gym.Space[Any],
    env_id: str,
    action: ActionSpec,
    settings: EnvConfig = UNSET,
    *,
    info_mask: bool = False,
    others: Iterable[gym.Space[Any]] = (),
) -> tuple[Leaf, ...]:
    """Return the leaves of an observation: one, or those of nested Dicts and Tuples in the order of the space.

    Args:
        space: Observation space of one env.
        env_id: Id of the env, for messages.
        action: Spec of the actions, to check the shape of a mask (the key 'action_mask' of a Dict).
        settings: Which keys are left out, and how images are reduced.
        info_mask: Whether the env's infos have an action mask. It becomes the last leaf.
        others: Observation spaces of all agents of a world, whose keys may be left out too; empty for an env with one
            agent.

    Raises:
        ConfigError: a space or a setting is not supported, a space of choices is empty, or a mask does not have one
            flag per choice.
    """
    ignored = settings.ignore_observations
    others = tuple(others)
    _require_keys(ignored, space, env_id, others)
    parts = [part for part in named_spaces(space) if not _is_ignored(part[0], ignored)]
    _require_supported(parts, ignored, env_id, in_world=bool(others))
    leaves = _reduced_leaves(tuple(_leaf(*part, env_id, action) for part in parts), settings, env_id)
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
        wrap = ", or pass a function as the env that wraps it in gymnasium.wrappers.FrameStackObservation"
        raise ConfigError(
            f"frame_stack is {stack}, which is not supported by {spec.id} because it has {_NO_IMAGES}: omit it"
            f"{'' if spec.agents else wrap}"
        )
    leaves = tuple(replace(leaf, stack=stack) if leaf.is_image else leaf for leaf in spec.observation)
    return replace(spec, observation=leaves)


def _leaf(name: str, space: gym.Space[Any], env_id: str, action: ActionSpec) -> Leaf:
    if name == OBSERVED_MASK:
        _require_mask(space, env_id, action)
        return _mask(name, action)
    found = choices_of(space)
    if found is not None:
        choices, start = found
        if not choices:
            raise ConfigError(
                f"{env_id} has observations of {shown(space)} ({name}), which is empty: leave it out of the "
                "observation space"
            )
        dtype = np.dtype(space.dtype).name
        return Leaf(name, space.shape or (), smallest_dtype(choices), choices, start, env_dtype=dtype)
    floating = np.issubdtype(space.dtype, np.floating)
    return Leaf(name, space.shape or (), "float32" if floating else np.dtype(space.dtype).name)


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


# --- keys that are left out -----------------------------------------------------------------------------------


def _require_keys(ignored: Sequence[str], space: gym.Space[Any], env_id: str, others: Iterable[gym.Space[Any]]) -> None:
    """Refuse keys that no observation has."""
    names = [name for each in (space, *others) for name, _ in named_spaces(each)]
    keys = dict.fromkeys(_key(name) for name in names if name != "observation")
    for key in ignored:
        if not any(_is_in(name, key) for name in names):
            has = (
                f"its keys are {', '.join(keys)}"
                if keys
                else "it is not a Dict or Tuple, so it has no keys: leave ignore_observations empty"
            )
            raise ConfigError(f"ignore_observations has {key!r}, which is not in the observation of {env_id}: {has}")


def _require_supported(
    parts: Iterable[tuple[str, gym.Space[Any]]], ignored: Sequence[str], env_id: str, *, in_world: bool
) -> None:
    """Refuse spaces that no network gets as inputs, such as text."""
    wrong = {
        name: space
        for name, space in parts
        if not (name == OBSERVED_MASK or isinstance(space, spaces.Box) or choices_of(space))
    }
    if not wrong:
        return
    which = ", ".join(f"{shown(space)} ({name})" for name, space in wrong.items())
    wrapper = "wrap the env in gymnasium.wrappers.TransformObservation, in a function that makes it"
    wrap = WRAP_WORLD if in_world else wrapper
    if "observation" not in wrong:
        keys = ",".join([*ignored, *map(_key, wrong)])
        wrap = f"pass --set ignore_observations={keys} to leave {'it' if len(wrong) == 1 else 'them'} out, or {wrap}"
    raise ConfigError(
        f"{env_id} has observations of {which}, but only Box, Discrete, MultiDiscrete and MultiBinary, and Dicts and "
        f"Tuples of these, are supported: {wrap}"
    )


def read_space(space: gym.Space[Any], ignored: Sequence[str], name: str = "observation") -> gym.Space[Any]:
    """Return the space of observations in which the parts that `ignore_observations` leaves out are `UNREAD`."""
    if _is_ignored(name, ignored):
        return UNREAD
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: read_space(part, ignored, f"{name}/{key}") for key, part in space.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([read_space(part, ignored, f"{name}/{key}") for key, part in enumerate(space)])
    return space


def _is_ignored(name: str, ignored: Sequence[str]) -> bool:
    return any(_is_in(name, key) for key in ignored)


def _is_in(name: str, key: str) -> bool:
    """Whether a leaf is the part of the observation with this key, or inside of it."""
    return f"{name}/".startswith(f"observation/{key}/")


def _key(name: str) -> str:
    return name.partition("/")[2]


# --- images -------------------------------------------------------------------------------------------------

LARGE_IMAGE = 128 * 128
"""Pixels of an image above which a note recommends a smaller one."""
USUAL_IMAGE = 84
"""Height and width of the images in that note."""
_NO_IMAGES = f"no images of bytes (np.uint8, {SMALLEST_IMAGE} pixels a side or more)"


def image_notes(leaves: Iterable[Leaf]) -> Iterator[tuple[str, str]]:
    """Yield what is probably not intended about images: a problem, and a remedy."""
    for leaf in leaves:
        height, width = leaf.sides
        if _is_float_image(leaf):
            problem = (
                f"{leaf.name} has images of {height} x {width} pixels in float32: they go through no encoder, and take "
                "four times the memory of bytes"
            )
            yield problem, "return bytes from 0 to 255, and Box(0, 255, shape, np.uint8) as the space"
        elif leaf.is_image and height * width > LARGE_IMAGE:
            smaller = reduced_leaf(leaf.as_given, (USUAL_IMAGE, USUAL_IMAGE), grayscale=True)
            problem = f"{leaf.name} has images of {height} x {width} pixels"
            factor = leaf.size // smaller.size
            yield problem, f"--set image_size={USUAL_IMAGE} grayscale=true makes them {factor} times smaller"


def _reduced_leaves(leaves: tuple[Leaf, ...], settings: EnvConfig, env_id: str) -> tuple[Leaf, ...]:
    """Return the leaves with the images that policies get.

    Raises:
        ConfigError: there are no images, or only `grayscale` is set and none has three colours.
    """
    size, grayscale = settings.image_sides, settings.grayscale
    if size is None and not grayscale:
        return leaves
    given = f"image_size is {settings.image_size[0]},{settings.image_size[-1]}" if size else "grayscale is true"
    if not any(leaf.is_image for leaf in leaves):
        floats = " Its float images must be returned as bytes from 0 to 255." * any(map(_is_float_image, leaves))
        raise ConfigError(f"{given}, which is not supported by {env_id} because it has {_NO_IMAGES}: omit it.{floats}")
    small = tuple(
        reduced_leaf(leaf, size, grayscale=grayscale) if leaf.is_image and not leaf.is_mask else leaf for leaf in leaves
    )
    if small == leaves and size is None:
        raise ConfigError(f"{given}, but none of the images of {env_id} has three colours: omit it")
    for leaf in small:
        if leaf.env_shape and size and leaf.sides != size:
            raise ConfigError(
                f"image_size is {size[0]},{size[1]}, but {leaf.name} of shape {list(leaf.env_shape)} has as many "
                "channels as a side would have pixels: pass a larger image_size"
            )
    return small


def _is_float_image(leaf: Leaf) -> bool:
    """Whether a leaf of floats is probably an image: of one, three or four channels, or without channels but with two
    long sides.
    """
    if leaf.dtype != "float32" or leaf.choices or len(leaf.shape) not in (2, 3):
        return False
    height, width = leaf.sides
    channels = leaf.size // max(1, height * width)
    smallest = USUAL_IMAGE // 2 if len(leaf.shape) == 2 else SMALLEST_IMAGE
    return min(height, width) >= smallest and channels in (1, 3, 4)
