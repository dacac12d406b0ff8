"""The rows of a group: arrays allocated once, into which adapters write, and what is checked of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

import gymnasium as gym
import numpy as np

from offbeat.core.choices import allows_each
from offbeat.core.errors import EnvFailed, with_traceback_of
from offbeat.core.types import INFO_MASK, Array, Leaf, Tree
from offbeat.envs.contract import Outcome
from offbeat.envs.spaces import children, single_spaces

Writer = Callable[[Any], None]
"""Copies one observation, or what an info says, to where it is kept."""


def empty_rows(leaves: Sequence[Leaf], columns: int, info: Sequence[str] = ()) -> Outcome:
    """Return the arrays that rows are written to, [columns, *shape]; `info` names what infos report."""
    return Outcome(
        observation={leaf.name: np.zeros((columns, *leaf.shape), leaf.dtype) for leaf in leaves},
        reward=np.zeros(columns, np.float32),
        terminated=np.zeros(columns, np.bool_),
        truncated=np.zeros(columns, np.bool_),
        valid=np.ones(columns, np.bool_),
        info=np.full((columns, len(info)), np.nan),
    )


def rows_of(rows: Outcome, group: slice) -> Outcome:
    """Return views of a group's columns."""
    observation = {name: leaf[group] for name, leaf in rows.observation.items()}
    _, reward, terminated, truncated, valid, info, over, no_decision = rows
    arrays = reward[group], terminated[group], truncated[group], valid[group], info[group]
    over, no_decision = (None if part is None else part[group] for part in (over, no_decision))
    return Outcome(observation, *arrays, over, no_decision)


def named(rows: Outcome) -> Tree:
    """Return the arrays of rows by name, leaves of the observation included; but not what infos report."""
    parts = zip(rows._fields[1:], rows[1:], strict=True)
    return {**rows.observation, **{name: part for name, part in parts if part is not None and name != "info"}}


def copy_exactly(target: Array, part: Array) -> None:
    """Copy an array of exactly the target's shape: NumPy would stretch a smaller one.

    Raises:
        ValueError: it has another shape.
    """
    if part.shape != target.shape:
        raise ValueError(f"an array of shape {part.shape} where {target.shape} is expected")
    target[...] = part


def observation_writer(space: gym.Space[Any], leaves: Sequence[Leaf], targets: Sequence[Array]) -> Writer:
    """Return the function that copies an observation to where its leaves are kept; floats become float32.

    It raises ValueError at another shape or kind of dtype than the space says, and at a choice that there is not.
    """
    given = zip(leaves, targets, single_spaces(space), strict=True)
    return _tree_writer(space, iter([_leaf_writer(*one) for one in given]))


def _tree_writer(space: gym.Space[Any], writers: Iterator[Writer]) -> Writer:
    parts = children(space)
    if parts is None:
        return next(writers)
    keyed = [(key, _tree_writer(part, writers)) for key, part in parts]

    def write_parts(observation: Any) -> None:
        for key, write in keyed:
            write(observation[key])

    return write_parts


def _leaf_writer(leaf: Leaf, target: Array, space: gym.Space[Any]) -> Writer:
    if leaf.is_mask:
        return mask_writer(target)
    if leaf.choices:
        return _choices_writer(leaf, target)
    return _box_writer(target, np.dtype(space.dtype))


def _box_writer(target: Array, declared: np.dtype[Any]) -> Writer:
    shape, kept = target.shape, target.dtype

    def write(part: Any) -> None:
        value = np.asarray(part)
        if value.shape != shape:
            raise ValueError(f"an observation of shape {value.shape} where its space says {shape}")
        if value.dtype is not declared and not np.can_cast(value.dtype, kept, "same_kind"):
            raise ValueError(f"an observation of {value.dtype} where its space says {declared}")
        target[...] = value

    return write


def _choices_writer(leaf: Leaf, target: Array) -> Writer:
    shape = target.shape
    start = np.array(leaf.start or 0, np.int64).reshape(leaf.shape if leaf.start else ())
    count = np.array(leaf.choices, np.int64).reshape(leaf.shape)

    def write(part: Any) -> None:
        value = np.asarray(part)
        if value.shape != shape:
            raise ValueError(f"an observation of shape {value.shape} where its space says {shape}")
        if value.dtype.kind not in "iub":
            raise ValueError(f"an observation of {value.dtype} where its space says whole numbers")
        number = value - start
        if ((number < 0) | (number >= count)).any():
            raise ValueError(f"{leaf.name} is {value.tolist()}, which is not one of the choices of its space")
        target[...] = number

    return write


def mask_writer(target: Array) -> Writer:
    """Return the function that copies flags, of any dtype, to the mask at `target`.

    It raises ValueError at another shape, and TypeError at a tuple of masks.
    """
    shape = target.shape

    def write(flags: Any) -> None:
        value = flags if isinstance(flags, np.ndarray) else _as_flags(flags)
        if value.shape != shape or value.dtype.kind not in "biuf":
            raise ValueError(
                f"an action_mask of {value.dtype} and shape {value.shape} where {shape}, a flag for each choice side "
                "by side, is expected"
            )
        np.not_equal(value, 0, out=target)

    return write


def _as_flags(flags: Any) -> Array:
    """Return a list of flags as an array.

    Raises:
        TypeError: it is a tuple of masks, one a component.
    """
    if isinstance(flags, tuple):
        raise TypeError("an action_mask that is a tuple, where one flat array of flags is expected: join it")
    return np.asarray(flags)


def info_mask_writer(target: Array) -> Writer:
    """Return the function that copies the mask in the infos of one env, or of a vector env, to `target`.

    Where there is none, nothing is allowed: `MaskCheck` then says so, unless an episode has ended there.
    """
    write = mask_writer(target)

    def write_mask(info: Mapping[str, Any]) -> None:
        if INFO_MASK not in info:
            target[...] = False
            return
        write(info[INFO_MASK])
        present = info.get(f"_{INFO_MASK}")  # a vector env's word on which of its envs gave one
        if present is not None:
            target[~np.asarray(present, np.bool_)] = False

    return write_mask


class MaskCheck:
    """Looks for decisions of which nothing is allowed, by one sum over a group's masks."""

    def __init__(self, rows: Outcome, name: str, nvec: tuple[int, ...], no_decision: Array | None = None) -> None:
        """Check the mask `name`, [n, sum(nvec)], which the next actions must respect, but where `no_decision` [n]."""
        self.name = name
        self._mask, self._nvec = rows.observation[name], nvec
        self._terminated, self._truncated = rows.terminated, rows.truncated
        self._no_decision = np.zeros_like(rows.terminated) if no_decision is None else no_decision

    def column(self) -> int | None:
        """Return the first column whose next action has no choice; None where all have.

        Where an episode has ended, or there is nothing to decide, the next action is ignored, and may be any if the env
        has not said which.
        """
        some = allows_each(self._mask, self._nvec).all(axis=1)
        if some.all():
            return None
        ignored = self._terminated | self._truncated | self._no_decision
        self._mask[~some & ignored] = True
        wrong = ~some & ~ignored
        return int(wrong.argmax()) if wrong.any() else None


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
        raise failed(env_id, first + column, f"{name} is NaN or infinite as float32, in which it is kept")


def require_choices(check: MaskCheck | None, env_id: str, first: int) -> None:
    """Raise EnvFailed where a mask, if there is one, allows nothing in a row that is a decision."""
    column = None if check is None else check.column()
    if check is not None and column is not None:
        what = "or its info has none, so" if check.name == INFO_MASK else "so that"
        raise failed(
            env_id, first + column, f"{check.name} is 0 for all choices of an action, {what} nothing is allowed"
        )


def mark_reset_rows(rows: Outcome) -> None:
    """Mark as invalid the rows that follow an episode's end."""
    # Never both: a row is valid where its last one was neither terminated nor truncated.
    np.equal(rows.terminated, rows.truncated, rows.valid)


def let_termination_win(rows: Outcome) -> None:
    """Let no row be both terminated and truncated."""
    np.greater(rows.truncated, rows.terminated, rows.truncated)


FAILURES = (Exception, SystemExit)
"""What an env may raise: one that calls sys.exit would otherwise end a run as if all were well."""


def failed(env_id: str, column: int, what: str, cause: BaseException | None = None) -> EnvFailed:
    """Return the error for an env that broke the contract; `cause` is what it raised, whose lines are shown."""
    error = EnvFailed(
        f"{env_id}, column {column}: {what}. Run `offbeat check {env_id}` (with the --import that it came by, if any) "
        "to see what is wrong with it"
    )
    return error if cause is None else with_traceback_of(error, cause)
