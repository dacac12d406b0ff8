"""Converts observations and actions of an env to and from the arrays of a policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from offbeat.core.choices import Choices, allows_each
from offbeat.core.images import reduced
from offbeat.core.types import INFO_MASK, Array, Leaf, Tree
from offbeat.models.acting import ActingPolicy


def flattened(name: str, tree: Any, leaves: AbstractSet[str] = frozenset()) -> Iterator[tuple[str, Any]]:
    """Yield (name, part) of all parts of nested dicts and tuples. A part with the name of a leaf is not divided."""
    if name in leaves or not isinstance(tree, Mapping | tuple | list):
        yield name, tree
        return
    for key, part in tree.items() if isinstance(tree, Mapping) else enumerate(tree):
        yield from flattened(f"{name}/{key}", part, leaves)


def stored_leaves(given: Mapping[str, Any], wanted: Sequence[Leaf]) -> tuple[Tree, bool]:
    """Return leaves as training stores them, with a column axis, [N, *shape].

    Also return whether this function has added the column axis.

    Args:
        given: the env's values by leaf.
        wanted: the leaves that are needed.

    Raises:
        ValueError: a leaf is missing, or its values are not those of the training.
    """
    leaves: Tree = {}
    counts: dict[str, int | None] = {}
    for leaf in wanted:
        if given.get(leaf.name) is None:
            raise ValueError(_missing_leaf(leaf, given))
        columns, single = _columns_of(leaf, given[leaf.name])
        leaves[leaf.name], counts[leaf.name] = as_stored(leaf, columns), None if single else len(columns)
    if len(counts) > 1:
        require_same_columns(counts)
    return leaves, None in counts.values()


def _missing_leaf(leaf: Leaf, given: Mapping[str, Any]) -> str:
    """Return the message for a leaf that is missing."""
    if leaf.name == INFO_MASK:
        return "this policy was trained with action masks: pass action_mask=info['action_mask'], or env.action_masks()"
    present = [name.partition("/")[2] for name, part in given.items() if part is not None]
    if leaf.name == "observation":
        return f"the observation is None, but an array of shape {leaf.shape} is expected"
    if present == [""]:
        return (
            f"the observation is one array, but a dict or tuple with {_key(leaf)!r} is expected, as the env returns it"
        )
    return f"the observation has no {_key(leaf)!r}: it has {', '.join(map(repr, present))}"


def _key(leaf: Leaf) -> str:
    return leaf.name.partition("/")[2]


def _columns_of(leaf: Leaf, given: Any) -> tuple[Array, bool]:
    """Return the values of a leaf with a column axis, [N, *shape], and whether this function has added the axis.

    Raises:
        ValueError: they are not numbers, or have another shape.
    """
    if isinstance(given, Mapping):
        raise ValueError(  # noqa: TRY004 - as for any other wrong observation
            f"{leaf.name} is a dict with {', '.join(map(repr, given))}, but one array of shape {_expected(leaf)}"
        )
    try:
        array = np.asarray(given)
    except (TypeError, ValueError) as error:
        kind = f"a {type(given).__name__} that is not an array"
        raise ValueError(f"{leaf.name} is {kind}, but shape {_expected(leaf)}: pass only the observation") from error
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{leaf.name} has values of dtype {array.dtype}, but numbers of shape {_expected(leaf)}")
    shape = leaf.as_given.shape
    single = array.shape == shape
    if not single and (array.ndim != len(shape) + 1 or array.shape[1:] != shape):
        raise ValueError(f"{leaf.name} has shape {array.shape}, but {_expected(leaf)}")
    if not single and not len(array):
        raise ValueError(f"{leaf.name} has shape {array.shape}, which is no observation: at least one is expected")
    return (array[None] if single else array), single


def _expected(leaf: Leaf) -> str:
    shape = leaf.as_given.shape
    return f"{shape} or ({', '.join(map(str, ('N', *shape)))}{'' if shape else ','}) is expected"


def require_same_columns(columns: Mapping[str, int | None]) -> None:
    """Refuse parts of one observation, or of one transition, with different numbers of columns.

    Args:
        columns: name of each part -> number of its columns; None: it has no column axis.

    Raises:
        ValueError: with two parts that differ.
    """
    first, number = next(iter(columns.items()))
    for name, other in columns.items():
        if other != number:
            raise ValueError(
                f"{first} is {_count(number)}, but {name} is {_count(other)}: pass the same number of envs in each part"
            )


def _count(columns: int | None) -> str:
    return "of one env" if columns is None else f"a batch of {columns}"


def require_choice(mask: Array, nvec: Choices) -> None:
    """Refuse masks [N, sum(nvec)] that allow no choice of a component.

    Raises:
        ValueError: names the first such row and component.
    """
    allowed = allows_each(mask, nvec)
    if not allowed.all():
        row, component = (int(index) for index in np.argwhere(~allowed)[0])
        where = f" of component {component} of the action" if len(nvec) > 1 else ""
        rows = f" in row {row}" if len(mask) > 1 else ""
        raise ValueError(
            f"action_mask allows no choice{where}{rows}: allow at least one. Where an episode has ended, allow any; "
            "with nothing to decide, pass no_decision=True"
        )


def with_choices(mask: Array, nvec: Choices) -> Array:
    """Return a mask [N, sum(nvec)] that allows all choices in rows in which it allows none of a component.

    In training, masks of rows without a decision are changed in the same way: an action must be one of the env's, also
    where it is ignored.
    """
    allowed: Array = mask | ~allows_each(mask, nvec).all(axis=1, keepdims=True)
    return allowed


def as_stored(leaf: Leaf, values: Array) -> Array:
    """Return the env's values [N, *shape] as training stores them.

    Choices count from 0, images are made smaller and grey, and all have the dtype of the leaf.

    Raises:
        ValueError: they are not finite, or not what the env's space allows.
    """
    if leaf.is_mask:
        allowed: Array = values != 0
        if values.dtype.kind == "f" and not (allowed == values).all():
            raise ValueError(
                f"{leaf.name} is {values.tolist()}, but 1 where a choice is allowed and else 0 is expected"
            )
        return allowed
    if not leaf.choices:
        stored = values if values.dtype == (dtype := np.dtype(leaf.dtype)) else _converted(leaf, values, dtype)
        if dtype.kind == "f" and not np.isfinite(stored).all():
            raise ValueError(
                f"{leaf.name} has NaN or infinity, or numbers too large for {leaf.dtype}, in {_first_wrong(stored)}: "
                "finite numbers are expected"
            )
        return reduced(stored, leaf)
    if values.dtype.kind not in "biu":
        raise ValueError(f"{leaf.name} has values of dtype {values.dtype}, but whole numbers are expected")
    numbers: Array = values - np.array(leaf.start).reshape(leaf.shape) if leaf.start else values
    if ((numbers < 0) | (numbers >= np.array(leaf.choices).reshape(leaf.shape))).any():
        lowest = np.array(leaf.start or [0] * len(leaf.choices))
        low, high = (_one_or_all(ends) for ends in (lowest, lowest + leaf.choices - 1))
        raise ValueError(
            f"{leaf.name} is {values.tolist()}, which is not one of the choices of the env's space: whole numbers from "
            f"{low} to {high} are expected"
        )
    return numbers.astype(leaf.dtype, copy=False)


def _one_or_all(numbers: Array) -> int | list[int]:
    """Return the number that all elements have, or else a list."""
    distinct = np.unique(numbers)
    return int(distinct[0]) if len(distinct) == 1 else numbers.tolist()


def _converted(leaf: Leaf, values: Array, dtype: np.dtype[Any]) -> Array:
    """Return values of another dtype in that of the leaf; numbers too large for a float become infinite."""
    if dtype.kind in "iu":
        _require_whole(leaf, values)
    with np.errstate(over="ignore"):
        return values.astype(dtype)


def _require_whole(leaf: Leaf, values: Array) -> None:
    """Refuse values that a conversion to integers would change, such as pixels from 0 to 1."""
    limits = np.iinfo(leaf.dtype)
    if values.dtype.kind not in "iub" or (values < limits.min).any() or (values > limits.max).any():
        raise ValueError(
            f"{leaf.name} has {values.dtype} values from {values.min()} to {values.max()}, but integers from "
            f"{limits.min} to {limits.max} are expected, as the env returns them: pass them as {leaf.dtype}"
        )


def _first_wrong(values: Array) -> str:
    """Return which element of values [N, *shape] is the first that is not finite, in words."""
    row, *index = (int(each) for each in np.argwhere(~np.isfinite(values))[0])
    rows = f"row {row}, " if len(values) > 1 else ""
    return f"{rows}element {index}" if index else f"{rows}value"


def as_recorded(policy: ActingPolicy, actions: Any) -> Array:
    """Return the env's actions, [N, *shape], as training records them.

    Raises:
        ValueError: they do not have the shape of the training, are not finite, or are not choices of the env.
    """
    spec = policy.spec.action
    given = np.asarray(actions)
    if given.shape[1:] != spec.shape:
        raise ValueError(
            f"the action has shape {given.shape[1:]}, but {spec.shape} is expected: pass the actions that the policy "
            "has returned"
        )
    if spec.kind == "box":
        return policy.to_env.inverse(as_stored(Leaf("action", spec.shape, policy.to_env.center.dtype.name), given))
    return as_stored(Leaf("action", spec.shape, spec.dtype, spec.nvec, spec.start), given)


def single_action(action: Any) -> Any:
    """Return the action of one env, with Python's int for a choice and NumPy's number for a Box of shape ()."""
    if isinstance(action, dict):
        return {key: single_action(part) for key, part in action.items()}
    if isinstance(action, tuple):
        return tuple(single_action(part) for part in action)
    return action.item() if isinstance(action, np.integer) else action.copy()


def rewards_of(given: Any, envs: int) -> Array:
    """Return the rewards of N envs, [N] float32. For one env a number is enough.

    Raises:
        ValueError: there are not as many as envs, or one is not finite in float32.
    """
    with np.errstate(over="ignore"):
        rewards = per_env("reward", given, envs, np.float32)
    if not np.isfinite(rewards).all():
        raise ValueError(f"reward is {np.asarray(given).tolist()}, but finite numbers of float32 are expected")
    return rewards


def per_env(name: str, given: Any, envs: int, dtype: type[np.generic] = np.bool_) -> Array:
    """Return values of N envs, [N]. For one env a value alone is enough.

    Raises:
        ValueError: there are not as many values as envs.
    """
    values = np.asarray(given, dtype)
    if values.shape != (envs,) and not (values.shape == () and envs == 1):
        raise ValueError(
            f"{name} has shape {values.shape}, but ({envs},) is expected: one value for each env of the calls before"
        )
    return values.reshape(envs)
