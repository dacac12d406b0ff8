"""The rows of a group: arrays allocated once, into which adapters write, and what is checked of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

import gymnasium as gym
import numpy as np

from offbeat.envs.contract import Outcome
from offbeat.envs.spaces import declared_dtypes, dict_keys
from offbeat.errors import EnvFailed
from offbeat.types import Array, Leaf, Tree

Writer = Callable[[Any], None]
"""Copies one observation to where it is kept."""


def empty_rows(leaves: Sequence[Leaf], columns: int) -> Outcome:
    """Return the arrays that rows are written to, [columns, *shape]."""
    return Outcome(
        observation={leaf.name: np.zeros((columns, *leaf.shape), leaf.dtype) for leaf in leaves},
        reward=np.zeros(columns, np.float32),
        terminated=np.zeros(columns, np.bool_),
        truncated=np.zeros(columns, np.bool_),
        valid=np.ones(columns, np.bool_),
    )


def rows_of(rows: Outcome, group: slice) -> Outcome:
    """Return views of a group's columns."""
    observation = {name: leaf[group] for name, leaf in rows.observation.items()}
    _, reward, terminated, truncated, valid = rows
    return Outcome(observation, reward[group], terminated[group], truncated[group], valid[group])


def named(rows: Outcome) -> Tree:
    """Return the arrays of rows by name, leaves of the observation included."""
    return {**rows.observation, **dict(zip(rows._fields[1:], rows[1:], strict=True))}


def copy_exactly(target: Array, part: Array) -> None:
    """Copy an array of exactly the target's shape: NumPy would stretch a smaller one.

    Raises:
        ValueError: it has another shape.
    """
    if part.shape != target.shape:
        raise ValueError(f"an array of shape {part.shape} where {target.shape} is expected")
    target[...] = part


def observation_writer(space: gym.Space[Any], targets: Sequence[Array]) -> Writer:
    """Return the function that copies an observation to where its leaves are kept; floats become float32.

    It raises ValueError at another shape or kind of dtype than the space says.
    """
    writers = [_leaf_writer(*pair) for pair in zip(targets, declared_dtypes(space), strict=True)]
    keys = dict_keys(space)
    if keys is None:
        return writers[0]

    def write_leaves(observation: Any) -> None:
        for key, write in zip(keys, writers, strict=True):
            write(observation[key])

    return write_leaves


def _leaf_writer(target: Array, declared: np.dtype[Any]) -> Writer:
    shape, kept = target.shape, target.dtype

    def write(part: Any) -> None:
        value = np.asarray(part)
        if value.shape != shape:
            raise ValueError(f"an observation of shape {value.shape} where its space says {shape}")
        if value.dtype is not declared and not np.can_cast(value.dtype, kept, "same_kind"):
            raise ValueError(f"an observation of {value.dtype} where its space says {declared}")
        target[...] = value

    return write


class FiniteCheck:
    """Looks for NaN and infinity in the rows of a group, by one sum an array."""

    def __init__(self, rows: Outcome) -> None:
        named = {**rows.observation, "reward": rows.reward}
        self._arrays = {name: part for name, part in named.items() if part.dtype.kind == "f"}
        self._flat = [part.reshape(-1) for part in self._arrays.values()]

    def column(self) -> tuple[int, str] | None:
        """Return the first column with such a value, and the name of the array; None where all are finite."""
        if all(isfinite(np.add.reduce(flat)) for flat in self._flat):
            return None
        for name, part in self._arrays.items():  # a sum of finite numbers may overflow too
            finite = np.isfinite(part).reshape(len(part), -1).all(axis=1)
            if not finite.all():
                return int(finite.argmin()), name
        return None


def require_finite(check: FiniteCheck, env_id: str, first: int) -> None:
    """Raise EnvFailed where the rows checked, whose first column is `first`, have NaN or infinity."""
    found = check.column()
    if found is not None:
        column, name = found
        raise failed(env_id, first + column, f"{name} is NaN or infinite")


def mark_reset_rows(rows: Outcome) -> None:
    """Mark as invalid the rows that follow an episode's end."""
    # Never both: a row is valid where its last one was neither terminated nor truncated.
    np.equal(rows.terminated, rows.truncated, rows.valid)


def let_termination_win(rows: Outcome) -> None:
    """Let no row be both terminated and truncated."""
    np.greater(rows.truncated, rows.terminated, rows.truncated)


FAILURES = (Exception, SystemExit)
"""What an env may raise: one that calls sys.exit would otherwise end a run as if all were well."""


def failed(env_id: str, column: int, what: str) -> EnvFailed:
    """Return the error for an env that broke the contract."""
    return EnvFailed(
        f"{env_id}, column {column}: {what}. Type `offbeat check {env_id}` (with the --import that it came by, if any) "
        "to see what is wrong with it"
    )
