"""Functions that write what envs return into rows: observations, and the action masks of infos."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from offbeat.core.images import reduced
from offbeat.core.types import INFO_MASK, Array, EnvSpec, Leaf, Tree
from offbeat.envs.failures import WrongValue
from offbeat.envs.findings import kind_of
from offbeat.envs.spaces import children

Writer = Callable[[Any], None]
"""Copies one observation, or the content of one info, into the rows."""


def observation_writer(space: gym.Space[Any], leaves: Sequence[Leaf], targets: Sequence[Array]) -> Writer:
    """Return a function that copies an observation into `targets`, one per leaf. Floats become float32.

    Parts of the observation without a leaf are not read. The function raises WrongValue if a part is missing, or if
    its shape, dtype or choice is not in the space.
    """
    wanted = {leaf.name: (leaf, target) for leaf, target in zip(leaves, targets, strict=True)}
    write = _tree_writer("observation", space, wanted)
    assert write is not None, "an observation without leaves"
    return write


def _tree_writer(name: str, space: gym.Space[Any], wanted: Mapping[str, tuple[Leaf, Array]]) -> Writer | None:
    """Return the writer of a part of the observation; None if no leaf is in it."""
    if name in wanted:
        return _leaf_writer(*wanted[name], space)
    parts = [(key, _tree_writer(f"{name}/{key}", part, wanted)) for key, part in children(space) or ()]
    keyed = [(key, write) for key, write in parts if write is not None]
    if not keyed:
        return None

    def write_parts(observation: Any) -> None:
        for key, write in keyed:
            try:
                part = observation[key]
            except (LookupError, TypeError) as error:
                raise _not_in_space(f"{kind_of(observation)} as {name}, without the {key!r} of its space") from error
            write(part)

    return write_parts


def _leaf_writer(leaf: Leaf, target: Array, space: gym.Space[Any]) -> Writer:
    if leaf.is_mask:
        return mask_writer(target)
    if leaf.choices:
        return _choices_writer(leaf, target)
    return _reducing_writer(leaf, target) if leaf.env_shape else _box_writer(target, np.dtype(space.dtype))


def _reducing_writer(leaf: Leaf, target: Array) -> Writer:
    """Return a writer of images that policies get smaller or grey."""
    received = np.zeros((*target.shape[: target.ndim - len(leaf.shape)], *leaf.env_shape), leaf.dtype)
    write_received = _box_writer(received, received.dtype)

    def write(part: Any) -> None:
        write_received(part)
        target[...] = reduced(received, leaf)

    return write


def _box_writer(target: Array, declared: np.dtype[Any]) -> Writer:
    shape, dtype = target.shape, target.dtype

    def write(part: Any) -> None:
        value = np.asarray(part)
        if value.shape != shape:
            raise _not_in_space(f"an observation of shape {value.shape} where its space declares {shape}")
        if value.dtype is not declared and not np.can_cast(value.dtype, dtype, "same_kind"):
            raise _not_in_space(f"an observation of {value.dtype} where its space declares {declared}")
        target[...] = value

    return write


def _choices_writer(leaf: Leaf, target: Array) -> Writer:
    shape = target.shape
    start = np.array(leaf.start or 0, np.int64).reshape(leaf.shape if leaf.start else ())
    count = np.array(leaf.choices, np.int64).reshape(leaf.shape)

    def write(part: Any) -> None:
        value = np.asarray(part)
        if value.shape != shape:
            raise _not_in_space(f"an observation of shape {value.shape} where its space declares {shape}")
        if value.dtype.kind not in "iub":
            raise _not_in_space(f"an observation of {value.dtype} where its space declares whole numbers")
        number = value - start
        if ((number < 0) | (number >= count)).any():
            raise _not_in_space(f"{value.tolist()} as {leaf.name}, which is not one of the choices of its space")
        target[...] = number

    return write


def _not_in_space(what: str) -> WrongValue:
    """Return the error for a part of an observation; `what`: the part, and what its space declares."""
    return WrongValue(f"{what}. In the env, return what the space declares, or declare what is returned")


def mask_writer(target: Array) -> Writer:
    """Return a function that copies flags, of any dtype, into the mask `target`.

    The function raises WrongValue for another shape, and for a tuple of masks.
    """
    shape = target.shape

    def write(flags: Any) -> None:
        value = flags if isinstance(flags, np.ndarray) else _as_flags(flags)
        if value.shape != shape or value.dtype.kind not in "biuf":
            raise WrongValue(
                f"an action_mask of {value.dtype} and shape {value.shape} where {shape} is expected: one flag per "
                "choice, the components concatenated"
            )
        np.not_equal(value, 0, out=target)

    return write


def _as_flags(flags: Any) -> Array:
    """Return a list of flags as an array.

    Raises:
        WrongValue: it is a tuple of masks, one per component.
    """
    if isinstance(flags, tuple):
        raise WrongValue("an action_mask that is a tuple where one flat array of flags is expected: concatenate it")
    return np.asarray(flags)


def info_mask_writer(target: Array) -> Writer:
    """Return a function that copies the mask in the infos of one env, or of a vector env, into `target`.

    An info without a mask allows nothing. `MaskCheck` then reports it, unless an episode has ended there.
    """
    write = mask_writer(target)

    def write_mask(info: Mapping[str, Any]) -> None:
        if INFO_MASK not in info:
            target[...] = False
            return
        write(info[INFO_MASK])
        present = info.get(f"_{INFO_MASK}")  # which envs of a vector env have a mask
        if present is not None:
            target[~np.asarray(present, np.bool_)] = False

    return write_mask


def writers_of(spec: EnvSpec, space: gym.Space[Any], targets: Tree) -> tuple[Writer, Writer | None]:
    """Return the writer of observations, and the writer of the infos' masks if the spec has such a leaf."""
    leaves = [leaf for leaf in spec.observation if leaf.name != INFO_MASK]
    write = observation_writer(space, leaves, [targets[leaf.name] for leaf in leaves])
    return write, info_mask_writer(targets[INFO_MASK]) if INFO_MASK in targets else None
