"""Converts observations and actions of an env to and from the arrays of a policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from offbeat.core.images import reduced
from offbeat.core.types import INFO_MASK, Array, Leaf
from offbeat.models.acting import ActingPolicy


def flattened(name: str, tree: Any, leaves: AbstractSet[str] = frozenset()) -> Iterator[tuple[str, Any]]:
    """Yield (name, part) of all parts of nested dicts and tuples. A part with the name of a leaf is not divided."""
    if name in leaves or not isinstance(tree, Mapping | tuple | list):
        yield name, tree
        return
    for key, part in tree.items() if isinstance(tree, Mapping) else enumerate(tree):
        yield from flattened(f"{name}/{key}", part, leaves)


def missing_leaf(leaf: Leaf, given: Mapping[str, Any]) -> str:
    """Return the message for a leaf that is missing."""
    if leaf.name == INFO_MASK:
        return "this policy was trained with action masks: pass action_mask=info['action_mask']"
    key = leaf.name.partition("/")[2]
    present = (name.partition("/")[2] for name, part in given.items() if part is not None)
    return f"the observation has no {key!r}: it has {', '.join(map(repr, present))}"


def as_stored(leaf: Leaf, values: Array) -> Array:
    """Return the env's values [N, *shape] as training stores them.

    Choices count from 0, images are made smaller and grey, and all have the dtype of the leaf.
    """
    if leaf.is_mask:
        allowed: Array = values != 0
        return allowed
    if not leaf.choices:
        _require_whole(leaf, values)
        return reduced(values.astype(leaf.dtype, copy=False), leaf)
    numbers: Array = values - np.array(leaf.start).reshape(leaf.shape) if leaf.start else values
    if ((numbers < 0) | (numbers >= np.array(leaf.choices).reshape(leaf.shape))).any():
        raise ValueError(f"{leaf.name} is {values.tolist()}, which is not one of the choices of the env's space")
    return numbers.astype(leaf.dtype, copy=False)


def _require_whole(leaf: Leaf, values: Array) -> None:
    """Refuse values that a conversion to integers would change, such as pixels from 0 to 1."""
    if values.dtype == leaf.dtype or np.dtype(leaf.dtype).kind not in "iu":
        return
    limits = np.iinfo(leaf.dtype)
    if values.dtype.kind not in "iub" or (values < limits.min).any() or (values > limits.max).any():
        raise ValueError(
            f"{leaf.name} has {values.dtype} values from {values.min()} to {values.max()}, but integers from "
            f"{limits.min} to {limits.max} are expected, as the env returns them: pass them as {leaf.dtype}"
        )


def as_recorded(policy: ActingPolicy, actions: Any) -> Array:
    """Return the env's actions, [N, *shape], as training records them.

    Raises:
        ValueError: they do not have the shape of the training.
    """
    spec = policy.spec.action
    given = np.asarray(actions)
    if given.shape[1:] != spec.shape:
        raise ValueError(f"the action has shape {given.shape[1:]}, but {spec.shape} is expected")
    if spec.kind == "box":
        return policy.to_env.inverse(given.astype(np.float32))
    choices: Array = given - np.array(spec.start or 0).reshape(spec.shape if spec.start else ())
    return choices


def single_action(action: Any) -> Any:
    """Return the action of one env, with Python numbers for choices."""
    if isinstance(action, dict):
        return {key: single_action(part) for key, part in action.items()}
    if isinstance(action, tuple):
        return tuple(single_action(part) for part in action)
    return action.copy() if isinstance(action, np.ndarray) else action.item()
