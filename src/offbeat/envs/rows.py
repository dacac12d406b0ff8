"""The rows of a group: arrays that are allocated once, and their checks. `writers` has the functions that fill them."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from offbeat.core.choices import allows_each
from offbeat.core.types import INFO_MASK, Array, EnvSpec, Leaf, Tree
from offbeat.envs.contract import Outcome
from offbeat.envs.failures import column_failed


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


class MaskCheck:
    """Finds rows whose mask allows no choice, with one reduction over a group's masks.

    Where the env will ignore the next action, such a mask is no fault: it is changed, so that it allows all choices.
    """

    def __init__(self, rows: Outcome, name: str, nvec: tuple[int, ...], ignored: Array | None) -> None:
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
    """Finds NaN and infinity in the rows of a group, with one float64 sum per array, which cannot overflow."""

    def __init__(self, rows: Outcome) -> None:
        arrays = {**rows.observation, "reward": rows.reward}
        self._arrays = [(name, part, part.reshape(-1)) for name, part in arrays.items() if part.dtype.kind == "f"]

    def column(self) -> tuple[int, str] | None:
        """Return the first column with such a value, and the name of the array; None if all are finite."""
        for name, part, flat in self._arrays:
            if not isfinite(np.add.reduce(flat, dtype=np.float64)):
                return int(np.isfinite(part).reshape(len(part), -1).all(axis=1).argmin()), name
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
        remedy = "allow at least one choice in every step, or end the episode there"
        return Fault(self._first + column, f"{name} is 0 for all choices of an action{missing}: {remedy}")

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
