"""The rows of a group: arrays that are allocated once, the functions that write into them, and their checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any, Literal, NamedTuple, cast

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from offbeat.core.choices import allows_each
from offbeat.core.errors import EnvFailed, with_traceback_of, without_full_stop
from offbeat.core.images import reduced
from offbeat.core.types import INFO_MASK, Array, EnvSpec, Leaf, Tree
from offbeat.envs.contract import Outcome
from offbeat.envs.opengl import opengl_remedy
from offbeat.envs.spaces import children

Writer = Callable[[Any], None]
"""Copies one observation, or the content of one info, into the rows."""


def empty_rows(leaves: Sequence[Leaf], columns: int, info: Sequence[str] = ()) -> Outcome:
    """Return arrays for rows, [columns, *shape]. `info` has the names of the values read from infos."""
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
    _, reward, terminated, truncated, valid, info, *optional = rows
    arrays = reward[group], terminated[group], truncated[group], valid[group], info[group]
    return Outcome(observation, *arrays, *(None if part is None else part[group] for part in optional))


def named(rows: Outcome) -> Tree:
    """Return the arrays of rows by name, with the leaves of the observation but without values of infos."""
    parts = zip(rows._fields[1:], rows[1:], strict=True)
    return {**rows.observation, **{name: part for name, part in parts if part is not None and name != "info"}}


def only_numbers(values: NDArray[np.float32]) -> memoryview[float]:
    """Return a view of values, [n], that raises TypeError for what is no number: NumPy would convert None to NaN."""
    return cast("memoryview[float]", values.data)


def copy_exactly(target: Array, part: Array) -> None:
    """Copy an array that must have the target's shape: NumPy alone would broadcast a smaller one.

    Raises:
        ValueError: the shapes differ.
    """
    if part.shape != target.shape:
        raise ValueError(f"an array of shape {part.shape} where {target.shape} is expected")
    target[...] = part


def observation_writer(space: gym.Space[Any], leaves: Sequence[Leaf], targets: Sequence[Array]) -> Writer:
    """Return a function that copies an observation into `targets`, one per leaf. Floats become float32.

    Parts of the observation without a leaf are not read. The function raises ValueError if a shape, dtype or choice is
    not in the space.
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
            write(observation[key])

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
            raise ValueError(f"an observation of shape {value.shape} where its space declares {shape}")
        if value.dtype is not declared and not np.can_cast(value.dtype, dtype, "same_kind"):
            raise ValueError(f"an observation of {value.dtype} where its space declares {declared}")
        target[...] = value

    return write


def _choices_writer(leaf: Leaf, target: Array) -> Writer:
    shape = target.shape
    start = np.array(leaf.start or 0, np.int64).reshape(leaf.shape if leaf.start else ())
    count = np.array(leaf.choices, np.int64).reshape(leaf.shape)

    def write(part: Any) -> None:
        value = np.asarray(part)
        if value.shape != shape:
            raise ValueError(f"an observation of shape {value.shape} where its space declares {shape}")
        if value.dtype.kind not in "iub":
            raise ValueError(f"an observation of {value.dtype} where its space declares whole numbers")
        number = value - start
        if ((number < 0) | (number >= count)).any():
            raise ValueError(f"{leaf.name} is {value.tolist()}, which is not one of the choices of its space")
        target[...] = number

    return write


def mask_writer(target: Array) -> Writer:
    """Return a function that copies flags, of any dtype, into the mask `target`.

    The function raises ValueError for another shape, and TypeError for a tuple of masks.
    """
    shape = target.shape

    def write(flags: Any) -> None:
        value = flags if isinstance(flags, np.ndarray) else _as_flags(flags)
        if value.shape != shape or value.dtype.kind not in "biuf":
            raise ValueError(
                f"an action_mask of {value.dtype} and shape {value.shape} where {shape} is expected: one flag per "
                "choice, the components concatenated"
            )
        np.not_equal(value, 0, out=target)

    return write


def _as_flags(flags: Any) -> Array:
    """Return a list of flags as an array.

    Raises:
        TypeError: it is a tuple of masks, one per component.
    """
    if isinstance(flags, tuple):
        raise TypeError("an action_mask that is a tuple where one flat array of flags is expected: concatenate it")
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


class MaskCheck:
    """Finds rows whose mask allows no choice, with one reduction over a group's masks.

    Where the env will ignore the next action, such a mask is no fault: it is changed, so that it allows all choices.
    """

    def __init__(self, rows: Outcome, name: str, nvec: tuple[int, ...], ignored: Array | None = None) -> None:
        """Check the mask of the next actions, [n, sum(nvec)].

        Args:
            rows: Rows of the group.
            name: Leaf with the mask.
            nvec: Number of choices of each component.
            ignored: Where the env ignores the next action, [n]; it is ignored after the end of an episode too. None:
                only there.
        """
        self.name = name
        self._mask, self._nvec = rows.observation[name], nvec
        self._terminated, self._truncated = rows.terminated, rows.truncated
        self._ignored = np.zeros_like(rows.terminated) if ignored is None else ignored

    def column(self) -> int | None:
        """Return the first column whose next action counts and has no allowed choice; None if there is none. Allow all
        choices where it does not count.
        """
        allowed = allows_each(self._mask, self._nvec).all(axis=1)
        if allowed.all():
            return None
        ignored = self._terminated | self._truncated | self._ignored
        self._mask[~allowed & ignored] = True
        wrong = ~allowed & ~ignored
        return int(wrong.argmax()) if wrong.any() else None


class FiniteCheck:
    """Finds NaN and infinity in the rows of a group, with one sum per array."""

    def __init__(self, rows: Outcome) -> None:
        arrays = {**rows.observation, "reward": rows.reward}
        self._arrays = {name: part for name, part in arrays.items() if part.dtype.kind == "f"}
        self._flat = [part.reshape(-1) for part in self._arrays.values()]

    def column(self) -> tuple[int, str] | None:
        """Return the first column with such a value, and the name of the array; None if all are finite."""
        if all(isfinite(np.add.reduce(flat)) for flat in self._flat):
            return None
        for name, part in self._arrays.items():  # a sum of finite numbers may overflow
            finite = np.isfinite(part).reshape(len(part), -1).all(axis=1)
            if not finite.all():
                return int(finite.argmin()), name
        return None


class Fault(NamedTuple):
    """A column whose row breaks the contract, and how."""

    column: int
    what: str


class RowChecks:
    """The checks of a group's rows: for NaN, infinity, and masks that allow nothing in a row with a decision."""

    def __init__(self, spec: EnvSpec, rows: Outcome, first: int, ignored: Array | None = None) -> None:
        """Check rows whose first column is `first`; `ignored` is that of `MaskCheck`."""
        self._spec, self._first = spec, first
        self._finite = FiniteCheck(rows)
        self._mask = MaskCheck(rows, spec.mask, spec.action.nvec, ignored) if spec.mask else None

    def fault(self) -> Fault | None:
        """Return a column with such a row; None if there is none."""
        if (found := self._finite.column()) is not None:
            return Fault(self._first + found[0], f"{found[1]} is NaN or infinite, or too large for float32")
        column = None if self._mask is None else self._mask.column()
        if self._mask is None or column is None:
            return None
        name = self._mask.name
        missing = ", or missing in the info" if name == INFO_MASK else ""
        return Fault(self._first + column, f"{name} is 0 for all choices of an action{missing}: no choice is allowed")

    def require(self) -> None:
        """Raise EnvFailed if there is one."""
        if (fault := self.fault()) is not None:
            raise column_failed(self._spec, fault.column, fault.what)


def mark_reset_rows(rows: Outcome) -> None:
    """Set `valid` to False in rows that follow the end of an episode, else to True."""
    # The two flags are never both set, so they are equal where the last row was neither terminated nor truncated.
    np.equal(rows.terminated, rows.truncated, rows.valid)


def prefer_termination(rows: Outcome) -> None:
    """Clear `truncated` in rows that are also terminated."""
    np.greater(rows.truncated, rows.terminated, rows.truncated)


FAILURES = (Exception, SystemExit)
"""Exceptions of an env that are reported. An env that calls sys.exit would otherwise end the run without an error."""


def failed(
    env_id: str,
    index: int,
    what: str,
    cause: BaseException | None = None,
    *,
    unit: Literal["env", "world"] = "env",
    command: str = "",
) -> EnvFailed:
    """Return the error for an env that violates the contract, with the user's part of the traceback of `cause`.

    Args:
        env_id: id of the env.
        index: index of the env with one agent, which is a column, or of the world.
        what: what it did.
        cause: the exception that it raised, if any.
        unit: whether `index` is that of an env with one agent or of a world.
        command: the command that checks the env; by default, with its id alone.
    """
    problem = without_full_stop(what)
    if cause is not None and (drawing := opengl_remedy(cause)):
        problem = f"{problem}: {drawing}"
    error = EnvFailed(
        f"{env_id}, {unit} {index}: {problem}",
        remedy=f"Run `{command or f'offbeat check {env_id}'}` to find the fault",
        column=index if unit == "env" else None,
    )
    return error if cause is None else with_traceback_of(error, cause)


def column_failed(spec: EnvSpec, column: int, what: str, cause: BaseException | None = None) -> EnvFailed:
    """Return the same error for a column of the envs with this spec, which have one agent: a column is an env."""
    return failed(spec.id, column, what, cause, command=spec.check_command)
